"""Snow, frost and fog. Batches are uint8 (N, 3, H, W)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ttc.corruptions.filters import clipped_zoom, motion_filter, to_uint8
from ttc.corruptions.random_streams import RandomStreams


def snow(
    x: Tensor,
    streams: RandomStreams,
    scale: float,
    mean: float,
    deviation: float,
    zoom: float,
    threshold: float,
    radius: float,
    sigma: float,
    keep: float,
) -> Tensor:
    """Add motion-blurred flakes, and the same flakes rotated by 180°, to a whitened image."""
    layer = streams.normal(*x.shape[2:]).mul_(deviation).add_(mean)
    layer = clipped_zoom(layer.permute(1, 2, 0).contiguous(), max(1.0, zoom * scale)).permute(2, 0, 1)
    flakes = to_uint8(layer.masked_fill(layer < threshold, 0.0))
    angles = streams.uniform(1)[:, 0].mul_(90).sub_(135)
    blown = motion_filter(flakes[:, None], radius * scale, sigma * scale, angles).float().div_(255)
    unit = x.float().div_(255)
    grey = unit[:, 0:1] * 0.299 + unit[:, 1:2] * 0.587 + unit[:, 2:3] * 0.114
    white = torch.maximum(unit, grey.mul_(1.5).add_(0.5)).mul_(1 - keep)
    return to_uint8(unit.mul_(keep).add_(white).add_(blown).add_(blown.flip(2, 3)))


def frost(
    x: Tensor,
    streams: RandomStreams,
    scale: float,
    image_weight: float,
    frost_weight: float,
    size: float,
    textures: Sequence[Tensor],
) -> Tensor:
    """Add a random crop of one of ``textures`` (3, h, w), chosen with equal probability, in a weighted sum."""
    height, width = x.shape[2:]
    fitted = [texture.to(x.device) for texture in textures]
    crops = torch.empty_like(x)
    for crop, (choice, down, right) in zip(crops, streams.uniform(3).tolist(), strict=True):
        texture = fitted[int(choice * len(fitted))]
        row, column = int(down * (texture.shape[1] - height)), int(right * (texture.shape[2] - width))
        crop.copy_(texture[:, row : row + height, column : column + width])
    return (x.double() * image_weight + crops.double() * frost_weight).clamp_(0, 255).to(torch.uint8)


def fog(x: Tensor, streams: RandomStreams, scale: float, strength: float, decay: float) -> Tensor:
    """Add a plasma fractal and rescale to the old maximum, so that black images stay black."""
    height, width = x.shape[2:]
    size = 1 << (max(height, width) - 1).bit_length()
    haze = plasma(streams.uniform(size, size), decay)[:, None, :height, :width]
    unit = x.double().div_(255)
    brightest = unit.amax((1, 2, 3), keepdim=True)
    return to_uint8((unit + haze.mul_(strength)).mul_(brightest / (brightest + strength)))


def plasma(draw: Tensor, decay: float) -> Tensor:
    """Run toroidal diamond-square on one uniform number per pixel: (N, size, size) in [0, 1], size a power of two.

    A level of step h adds w²·U(−1, 1) to the mean of four neighbours; w starts at 100 and shrinks by ``decay``.
    """
    jitter = draw * 2 - 1
    field = torch.zeros_like(draw)
    step, wobble = draw.shape[-1], 100.0
    while step >= 2:
        half = step // 2
        corners = field[:, ::step, ::step]
        down = corners + corners.roll(-1, 1)
        centres = (down + down.roll(-1, 2)) / 4 + jitter[:, half::step, half::step] * wobble**2
        field[:, half::step, half::step] = centres
        pairs = centres + centres.roll(1, 1)  # the centres above and below a horizontal edge
        edges = (corners + corners.roll(-1, 2) + pairs) / 4
        field[:, ::step, half::step] = edges + jitter[:, ::step, half::step] * wobble**2
        pairs = centres + centres.roll(1, 2)
        field[:, half::step, ::step] = (down + pairs) / 4 + jitter[:, half::step, ::step] * wobble**2
        step, wobble = half, wobble / decay
    field -= field.amin((1, 2), keepdim=True)
    return field.div_(field.amax((1, 2), keepdim=True))
