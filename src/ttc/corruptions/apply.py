"""Corrupt a batch of images: the entry point of the package."""

import os
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ttc.corruptions import blur, colour, digital, noise, spatter, weather
from ttc.corruptions.frost_textures import fit_textures
from ttc.corruptions.random_streams import RandomStreams
from ttc.corruptions.severity_tables import (
    CORRUPTIONS,
    EXTRA_CORRUPTIONS,
    SEVERITIES,
    TABLES,
    TableName,
    length_scale,
    nearest_table,
)
from ttc.errors import TTCError, unknown

ImageBatch = TypeVar("ImageBatch", NDArray[np.uint8], Tensor)
SMALLEST_SIDE = 16
_CHUNK_ELEMENTS = 1 << 19  # processed at once: about the size of a level-2 cache in single precision

_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "gaussian_noise": noise.gaussian_noise,
    "shot_noise": noise.shot_noise,
    "impulse_noise": noise.impulse_noise,
    "defocus_blur": blur.defocus_blur,
    "glass_blur": blur.glass_blur,
    "motion_blur": blur.motion_blur,
    "zoom_blur": blur.zoom_blur,
    "snow": weather.snow,
    "frost": weather.frost,
    "fog": weather.fog,
    "brightness": colour.brightness,
    "contrast": colour.contrast,
    "elastic_transform": digital.elastic_transform,
    "pixelate": digital.pixelate,
    "jpeg_compression": digital.jpeg_compression,
    "speckle_noise": noise.speckle_noise,
    "gaussian_blur": blur.gaussian_blur,
    "spatter": spatter.spatter,
    "saturate": colour.saturate,
}


def corrupt(
    images: ImageBatch,
    corruption: str,
    severity: int = 5,
    *,
    table: TableName | None = None,
    seed: int = 0,
    indices: Sequence[int] | NDArray[np.integer[Any]] | None = None,
    frost_dir: str | os.PathLike[str] | None = None,
) -> ImageBatch:
    """Apply a common corruption to a batch of images.

    The result for an image depends only on (seed, corruption, severity, index), never on the rest of the batch. Random
    numbers are drawn by NumPy on the CPU for every device, so results on a GPU differ by rounding at most.

    Args:
        images: A uint8 array or tensor (N, H, W, 3), at least 16 pixels on each side; it is not changed.
        corruption: A name in ``CORRUPTIONS`` or ``EXTRA_CORRUPTIONS``.
        severity: 1 … 5; 0 returns a copy.
        table: The severity table, ``"cifar"`` (for 32 pixels) or ``"imagenet"`` (for 224); by default the one nearest
            to the shorter side, see ``nearest_table``. Lengths scale with that side.
        seed: The seed of the random numbers, 0 … 2**64 - 1.
        indices: The index of each image in its dataset, so that any part of a dataset can be corrupted separately; by
            default 0 … N-1.
        frost_dir: A folder with the original frost images; by default procedural textures are used.

    Returns:
        The corrupted images, of the same type, shape and device.

    Raises:
        TTCError: The images, the corruption, the severity or another argument is invalid.

    Example:
        >>> import numpy as np
        >>> grey = np.full((4, 32, 32, 3), 128, dtype=np.uint8)
        >>> noisy = corrupt(grey, "gaussian_noise", severity=5, seed=1)
        >>> bool((noisy[2:] == corrupt(grey[2:], "gaussian_noise", severity=5, seed=1, indices=[2, 3])).all())
        True
    """
    validate_choice(corruption, severity, table)
    if not 0 <= seed < 1 << 64:
        raise TTCError(f"the seed must be between 0 and 2**64 - 1; got {seed}")
    name, scale = _table_and_scale(images, table)
    rows = range(len(images)) if indices is None else [int(index) for index in indices]
    if len(rows) != len(images) or any(not 0 <= index < 1 << 64 for index in rows):
        raise TTCError(
            f"indices must be non-negative integers, one per image; got {len(rows)} indices for {len(images)} images"
        )
    source: Any = images  # an array or a tensor
    if severity == 0:
        return deepcopy(images)
    parameters = TABLES[name].parameters[corruption][severity - 1]
    extra: dict[str, Any] = {}
    if corruption == "frost":
        folder = None if frost_dir is None else Path(frost_dir)
        extra["textures"] = fit_textures(folder, parameters[-1] * scale, source.shape[1], source.shape[2])
    is_array = isinstance(source, np.ndarray)
    device = torch.device("cpu") if is_array else source.device
    result = torch.empty(source.shape, dtype=torch.uint8, device=device)
    step = max(1, _CHUNK_ELEMENTS // (source.shape[1] * source.shape[2] * 3))
    for start in range(0, len(source), step):
        piece = source[start : start + step]
        batch = (
            torch.from_numpy(np.array(piece)) if is_array else piece
        )  # a copy: arrays may be read-only or have negative strides
        streams = RandomStreams(seed, f"{corruption}/{severity}", rows[start : start + step], device)
        x = batch.permute(0, 3, 1, 2).contiguous()
        changed = _FUNCTIONS[corruption](x, streams, scale, *parameters, **extra)
        result[start : start + step] = changed.permute(0, 2, 3, 1)
    return cast(ImageBatch, result.numpy() if is_array else result)


def _table_and_scale(images: object, table: TableName | None) -> tuple[TableName, float]:
    """Return the table for these images and the scale of its lengths; reject invalid images."""
    good = isinstance(images, np.ndarray) and images.dtype == np.uint8
    good = good or (isinstance(images, Tensor) and images.dtype == torch.uint8)
    shape = tuple(getattr(images, "shape", ()))
    if not good or len(shape) != 4 or shape[3] != 3:
        kind = f"{getattr(images, 'dtype', type(images).__name__)} {shape}"
        raise TTCError(
            f"images must be a uint8 array or tensor of shape (N, H, W, 3); got {kind}: "
            "convert greyscale, RGBA or 16-bit images to 8-bit RGB first, channels last"
        )
    _, height, width, _ = shape
    if min(height, width) < SMALLEST_SIDE:
        smallest = f"{SMALLEST_SIDE}x{SMALLEST_SIDE}"
        raise TTCError(f"images must be at least {smallest} pixels; got {height}x{width}: enlarge them first")
    name = table or nearest_table(height, width)
    return name, length_scale(name, height, width)


def validate_choice(corruption: str, severity: int, table: str | None) -> None:
    """Reject a corruption, severity or table that does not exist."""
    known = (*CORRUPTIONS, *EXTRA_CORRUPTIONS)
    if corruption not in known:
        raise unknown("corruption", corruption, known)
    if severity not in (0, *SEVERITIES):
        raise TTCError(f"severity must be 1, 2, 3, 4 or 5 (or 0 for clean images); got {severity!r}")
    if table is not None and table not in TABLES:
        raise unknown("severity table", table, TABLES)
