"""Spatter: drops of water or splashes of mud. Batches are uint8 (N, 3, H, W); the layers are (N, H, W)."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ttc.corruptions.filters import box_filter, filtered_noise_std, gaussian_filter, to_uint8
from ttc.corruptions.random_streams import RandomStreams

_WATER = (175 / 255, 238 / 255, 238 / 255)
_MUD = (63 / 255, 42 / 255, 20 / 255)
# OpenCV's 5 × 5 chamfer steps in 1/65536 pixel: straight, diagonal, knight's move
_STRAIGHT, _DIAGONAL, _KNIGHT = 65536, 91750, 143976


def spatter(
    x: Tensor,
    streams: RandomStreams,
    scale: float,
    mean: float,
    deviation: float,
    blur: float,
    threshold: float,
    gain: float,
    is_mud: float,
) -> Tensor:
    """Draw random blots where noise exceeds ``threshold``, as water lit at its edges or as opaque mud."""
    deviation *= filtered_noise_std(blur) / filtered_noise_std(blur * scale)
    layer = streams.normal(*x.shape[2:]).double().mul_(deviation).add_(mean)
    layer = gaussian_filter(layer[:, None], blur * scale)[:, 0]
    layer = layer.masked_fill(layer < threshold, 0.0)
    unit = x.float().div_(255)
    colour = torch.tensor(_MUD if is_mud else _WATER, device=x.device)[:, None, None]
    if is_mud:
        blots = gaussian_filter((layer > threshold).double()[:, None], gain * scale)
        blots = blots.masked_fill(blots < 0.8, 0.0).float()
        return to_uint8(unit * (1 - blots) + blots * colour)
    wet = (layer * 255).long() % 256  # uint8 arithmetic wraps above 1
    light = wet * _edge_light(wet, 20 * scale)
    peak = light.amax((1, 2), keepdim=True).clamp(min=1e-9)  # avoids 0/0 where nothing exceeds the threshold
    return to_uint8(unit + (light / peak).mul_(gain)[:, None] * colour)


def _edge_light(wet: Tensor, cap: float) -> Tensor:
    """Return the brightness of the water: a relief of the distance to the edges of the drops, 0 … 255."""
    distance = chamfer_distance(canny_edges(wet, 50, 150), cap)
    smooth = box_filter(distance[:, None]).to(torch.uint8)
    equal = equalize_histogram(smooth[:, 0])[:, None].float()
    relief = torch.tensor([[-2.0, -1, 0], [-1, 1, 1], [0, 1, 2]], device=wet.device)[None, None]
    lit = F.conv2d(F.pad(equal, (1, 1, 1, 1), mode="reflect"), relief).clamp_(0, 255)
    return box_filter(lit).round_()[:, 0]


def canny_edges(grey: Tensor, low: int, high: int) -> Tensor:
    """Detect Canny edges in integer images (N, H, W): Sobel, |gx| + |gy|, thinning, hysteresis over 8 neighbours."""
    near = _neighbours(F.pad(grey[:, None].float(), (1, 1, 1, 1), mode="replicate")[:, 0].int())
    gx = near[-1, 1] + 2 * near[0, 1] + near[1, 1] - near[-1, -1] - 2 * near[0, -1] - near[1, -1]
    gy = near[1, -1] + 2 * near[1, 0] + near[1, 1] - near[-1, -1] - 2 * near[-1, 0] - near[-1, 1]
    size = gx.abs() + gy.abs()
    around = _neighbours(F.pad(size, (1, 1, 1, 1)))
    run, rise = gx.abs() * 13573, gy.abs() * 32768  # tan 22.5° in 1/32768
    flat, steep = rise < run, rise > run + gx.abs() * 65536
    across = (size > around[0, -1]) & (size >= around[0, 1])
    along = (size > around[-1, 0]) & (size >= around[1, 0])
    falling = (size > around[-1, -1]) & (size > around[1, 1])
    rising = (size > around[-1, 1]) & (size > around[1, -1])
    slanted = torch.where((gx ^ gy) < 0, rising, falling)
    thin = (size > low) & torch.where(flat, across, torch.where(steep, along, slanted))
    edges = thin & (size > high)
    while True:
        tall = F.pad(edges, (0, 0, 1, 1))
        tall = tall[:, 1:-1] | tall[:, 2:] | tall[:, :-2]
        wide = F.pad(tall, (1, 1))
        grown = (wide[:, :, 1:-1] | wide[:, :, 2:] | wide[:, :, :-2]) & thin
        if torch.equal(grown, edges):
            return edges
        edges = grown


def _neighbours(padded: Tensor) -> dict[tuple[int, int], Tensor]:
    """Return the eight neighbours and the pixel itself, by (row, column) offset, of an image padded by one."""
    height, width = padded.shape[1] - 2, padded.shape[2] - 2
    shifts = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    return {(i, j): padded[:, 1 + i : 1 + i + height, 1 + j : 1 + j + width] for i, j in shifts}


def chamfer_distance(edges: Tensor, cap: float) -> Tensor:
    """Return the 5 × 5 chamfer distance to the nearest edge, at most ``cap``: float32 (N, H, W)."""
    height, width = edges.shape[1:]
    limit = int(cap * _STRAIGHT)
    distance = F.pad(torch.full(edges.shape, limit, dtype=torch.int32, device=edges.device), (2,) * 4, value=limit)
    inner = distance[:, 2:-2, 2:-2]
    inner.masked_fill_(edges, 0)
    steps = [(0, 1, _STRAIGHT), (1, 0, _STRAIGHT), (1, 1, _DIAGONAL), (1, -1, _DIAGONAL)]
    steps += [(i, j, _KNIGHT) for i, j in ((1, 2), (2, 1), (1, -2), (2, -1))]
    for _ in range(math.ceil(cap)):  # a step is at least one pixel long
        before = inner.clone()
        for i, j, cost in steps:
            for sign in (1, -1):
                row, column = 2 + sign * i, 2 + sign * j
                torch.minimum(inner, distance[:, row : row + height, column : column + width] + cost, out=inner)
        if torch.equal(before, inner):
            break
    return inner / float(_STRAIGHT)


def equalize_histogram(grey: Tensor) -> Tensor:
    """Equalise the histograms of uint8 images (N, H, W); the darkest level present becomes 0."""
    levels = grey.flatten(1).long()
    histogram = torch.zeros(len(grey), 256, dtype=torch.int64, device=grey.device)
    histogram.scatter_add_(1, levels, torch.ones_like(levels))
    cumulative = histogram.cumsum(1)
    first = histogram.gather(1, levels.amin(1, keepdim=True))
    rest = levels.shape[1] - first
    table = ((cumulative - first).float() * (255 / rest.clamp(min=1))).round_().clamp_(0, 255)
    table = torch.where(rest == 0, torch.arange(256, device=grey.device), table)  # one grey level: unchanged
    return table.gather(1, levels).view_as(grey).to(torch.uint8)
