"""Blurs: defocus, frosted glass, motion, zoom and Gaussian. Batches are uint8 (N, 3, H, W)."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ttc.corruptions.filters import (
    clipped_zoom,
    correlate,
    gaussian_filter,
    gaussian_weights,
    motion_filter,
    to_uint8,
)
from ttc.corruptions.random_streams import RandomStreams


def gaussian_blur(x: Tensor, streams: RandomStreams, scale: float, sigma: float) -> Tensor:
    """Apply a Gaussian filter of width σ, edges replicated."""
    return to_uint8(gaussian_filter(x.double().div_(255), sigma * scale))


def defocus_blur(x: Tensor, streams: RandomStreams, scale: float, radius: float, softness: float) -> Tensor:
    """Correlate with a disk, the aperture of a lens, with a softened edge."""
    kernel = disk_kernel(radius * scale, softness * scale).to(x.device)
    blurred = correlate(x.double().div_(255), kernel)
    # where the exact value is an integer, 2⁻³⁰ of a grey level keeps rounding errors of the FFT from truncating it
    return to_uint8(blurred.add_(2.0**-30 / 255))


def disk_kernel(radius: float, softness: float) -> Tensor:
    """Return the disk of ``radius`` blurred by a 3 × 3 Gaussian (5 × 5 above radius 8), without margins of zeros.

    The blur mirrors at the border of the grid −8 … 8 (−⌊radius⌋ … ⌊radius⌋ above 8), which disks of radius 8 and more
    touch: their kernels sum to slightly more than 1, as the published ones do.

    >>> kernel = disk_kernel(0.3, 0.4)
    >>> kernel.shape, round(kernel[1, 1].item(), 4), round(disk_kernel(8, 0.5).sum().item(), 4)
    (torch.Size([3, 3]), 0.845, 1.013)
    """
    half = 8 if radius <= 8 else math.floor(radius)
    line = torch.arange(-half, half + 1)
    disk = (line[:, None] ** 2 + line**2 <= radius**2).float()
    reach = 1 if radius <= 8 else 2
    weights = [math.exp(-0.5 * (i / softness) ** 2) for i in range(-reach, reach + 1)]
    row = (torch.tensor(weights, dtype=torch.float64) / math.fsum(weights)).float().double()
    # filtered in float64 and rounded once: sums in float32 differ between processors, and with them some pixels
    kernel = F.pad((disk / disk.sum()).double()[None, None], (reach,) * 4, mode="reflect")
    kernel = F.conv2d(F.conv2d(kernel, row[None, None, None]), row[None, None, :, None])[0, 0].float()
    margin = int(torch.nonzero(kernel.sum(1))[0])
    return kernel[margin : len(kernel) - margin, margin : len(kernel) - margin]


def motion_blur(x: Tensor, streams: RandomStreams, scale: float, radius: float, sigma: float) -> Tensor:
    """Apply a one-sided motion blur at an angle uniform in ±45°."""
    angles = streams.uniform(1)[:, 0].mul_(90).sub_(45)
    return motion_filter(x, radius * scale, sigma * scale, angles)


def zoom_blur(x: Tensor, streams: RandomStreams, scale: float, step: float, count: float) -> Tensor:
    """Average the image and its enlargements by 1, 1 + step, …; the image itself counts twice."""
    unit = x.permute(2, 3, 0, 1).contiguous().float().div_(255).flatten(2)  # (H, W, N·3): contiguous vectors per pixel
    total = 2 * unit
    spare = (torch.empty_like(unit), torch.empty_like(unit), torch.empty_like(unit))
    exact_step = (1 + step) - 1  # the step that np.arange adds, which determines how crops are rounded
    for i in range(1, int(count)):
        total += clipped_zoom(unit, 1 + i * exact_step, spare)
    blurred = to_uint8(total.div_(int(count) + 1))  # (H, W, N·3)
    return blurred.view(*x.shape[2:], *x.shape[:2]).permute(2, 3, 0, 1)


def glass_blur(x: Tensor, streams: RandomStreams, scale: float, sigma: float, reach: float, rounds: float) -> Tensor:
    """Blur, replace pixels by random neighbours, and blur again."""
    sigma, reach = sigma * scale, max(1, round(reach * scale))
    height, width = x.shape[2:]
    blurred = to_uint8(gaussian_filter(x.double().div_(255), sigma)) if len(gaussian_weights(sigma)) > 1 else x
    origin = torch.arange(height * width, device=x.device).expand(len(x), -1)
    for _ in range(int(rounds)):
        origin = origin.gather(1, shuffled_origin(streams, height, width, reach))
    pixels = blurred.flatten(2).gather(2, origin[:, None].expand(-1, 3, -1)).view_as(x)
    return to_uint8(gaussian_filter(pixels.double().div_(255), sigma))


def shuffled_origin(streams: RandomStreams, height: int, width: int, reach: int) -> Tensor:
    """Return, per pixel, the flat index of the pixel it shows after one round of copying: (N, H·W).

    The round visits rows H − Δ … Δ + 1 and columns W − Δ … Δ + 1 downwards and sets pixel ← pixel + (dy, dx), both
    uniform on −Δ … Δ − 1. A source visited before has already been overwritten, so a pixel points at the *new* value of
    such a source and at the *old* value of any other. Pointer doubling follows the chains to their ends and gives
    exactly the result of the loop, for all images at once.
    """
    draw = streams.uniform(2, height, width, dtype=torch.float32)
    offset = draw.mul_(2 * reach).floor_().long().sub_(reach)  # (N, 2, H, W)
    place = torch.arange(height * width, device=offset.device).view(height, width)
    row, column = place // width, place % width
    visited = (row > reach) & (row <= height - reach) & (column > reach) & (column <= width - reach)
    source = (place + offset[:, 0] * width + offset[:, 1]).where(visited, place).flatten(1)
    if reach == 1:
        return source  # every source is above or to the left: not visited yet
    old, place = height * width, place.flatten()
    again = (source > place) & visited.flatten()[source]
    pointer = torch.cat([source.where(again, source + old), (place + old).expand(len(source), -1)], dim=1)
    while True:
        further = pointer.gather(1, pointer)
        if torch.equal(further, pointer):
            return pointer[:, :old] - old
        pointer = further
