"""Elastic transform, pixelation and JPEG compression. Batches are uint8 (N, 3, H, W)."""

import io
import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from ttc.corruptions.filters import filtered_noise_std, to_uint8
from ttc.corruptions.random_streams import RandomStreams


def elastic_transform(
    x: Tensor, streams: RandomStreams, scale: float, displacement: float, sigma: float, jitter: float
) -> Tensor:
    """Apply a random affine map, then a smooth random displacement of every pixel."""
    unit = x.float().div_(255)
    height, width = x.shape[2:]
    place = _pixel_places(height, width, x.device)  # (H, W, 2) as (column, row)
    inverse = _inverse_affine(streams, height, width, jitter * scale)  # (N, 2, 3)
    moved = place @ inverse[:, None, :, :2].transpose(2, 3) + inverse[:, None, None, :, 2]
    unit = _sampled(unit, moved, centred_mirror=True)
    if displacement > 0:
        rows, columns = (_smoothing_matrix(side, sigma * scale).to(x.device) for side in (height, width))
        field = streams.uniform(2, height, width).mul_(2).sub_(1)
        displacement *= scale * filtered_noise_std(sigma, 3.0) / filtered_noise_std(sigma * scale, 3.0)
        field = (rows @ field @ columns.T).mul_(displacement)
        unit = _sampled(unit, place + field.permute(0, 2, 3, 1), centred_mirror=False)
    return to_uint8(unit)


def _pixel_places(height: int, width: int, device: torch.device) -> Tensor:
    """Return the (column, row) of each pixel: float64 (H, W, 2)."""
    row, column = torch.meshgrid(
        torch.arange(height, dtype=torch.float64, device=device),
        torch.arange(width, dtype=torch.float64, device=device),
        indexing="ij",
    )
    return torch.stack([column, row], dim=-1)


def _inverse_affine(streams: RandomStreams, height: int, width: int, jitter: float) -> Tensor:
    """Return the inverse affine map when three corners of a centred square move by up to ±jitter: (N, 2, 3)."""
    centre_column, centre_row, arm = width // 2, height // 2, min(height, width) // 3
    corners = ((arm, arm), (arm, -arm), (-arm, -arm))
    old = torch.tensor([(centre_column + a, centre_row + b) for a, b in corners], dtype=torch.float64)
    shift = streams.uniform(3, 2).mul_(2).sub_(1).mul_(jitter)
    moved = shift + old.to(shift.device)
    homogeneous = F.pad(moved, (0, 1), value=1.0)  # (N, 3, 3)
    inverse: Tensor = torch.linalg.solve(homogeneous, old.to(shift.device).expand_as(moved))
    return inverse.transpose(1, 2)


def _smoothing_matrix(side: int, sigma: float) -> Tensor:
    """Return the Gaussian filter of one axis, truncated at 3σ, as a matrix; borders mirrored at pixel edges."""
    radius = int(3 * sigma + 0.5)
    taps = torch.arange(-radius, radius + 1)
    weights = torch.exp(-0.5 * (taps.double() / sigma) ** 2)
    source = (torch.arange(side)[:, None] + taps) % (2 * side)
    source = torch.where(source < side, source, 2 * side - 1 - source)
    matrix = torch.zeros(side, side, dtype=torch.float64)
    return matrix.scatter_add_(1, source, (weights / weights.sum()).expand(side, -1))


def _sampled(unit: Tensor, place: Tensor, centred_mirror: bool) -> Tensor:
    """Sample bilinearly at ``place`` (N, H, W, 2), borders mirrored at pixel centres or at pixel edges."""
    side = torch.tensor([unit.shape[3], unit.shape[2]], dtype=torch.float64, device=unit.device)
    grid = place * 2 / (side - 1) - 1 if centred_mirror else (place * 2 + 1) / side - 1
    return F.grid_sample(unit, grid.float(), padding_mode="reflection", align_corners=centred_mirror)


def pixelate(x: Tensor, streams: RandomStreams, scale: float, fraction: float) -> Tensor:
    """Shrink the image to a ``fraction`` of its side and enlarge it again, both with a box filter."""
    height, width = x.shape[2:]
    small = (math.floor(width * fraction), math.floor(height * fraction))
    return _apply_pillow(
        x, lambda image: image.resize(small, Image.Resampling.BOX).resize((width, height), Image.Resampling.BOX)
    )


def jpeg_compression(x: Tensor, streams: RandomStreams, scale: float, quality: float) -> Tensor:
    """Compress as JPEG with 4:2:0 subsampling; the last grey level depends on the build of libjpeg."""

    def through_jpeg(image: Image.Image) -> Image.Image:
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=int(quality))
        return Image.open(buffer)

    return _apply_pillow(x, through_jpeg)


def _apply_pillow(x: Tensor, change: Callable[[Image.Image], Image.Image]) -> Tensor:
    """Apply a Pillow operation to each image, on the CPU; Pillow releases the interpreter lock meanwhile."""
    images = x.permute(0, 2, 3, 1).contiguous().cpu().numpy()
    changed = np.stack([np.asarray(change(Image.fromarray(image))) for image in images])
    return torch.from_numpy(changed).permute(0, 3, 1, 2).to(x.device)
