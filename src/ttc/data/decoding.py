"""Decode image files of any kind to 8-bit RGB, resized and cropped as a model expects."""

import warnings
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from PIL import Image, UnidentifiedImageError

from ttc.data.images import Pixels
from ttc.errors import TTCError

Interpolation = Literal["bilinear", "bicubic"]
_FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


class Fitting(NamedTuple):
    """How images are fitted to a model: resize the shorter side to ``resize``, then crop the centre to ``side``."""

    side: int
    resize: int
    interpolation: Interpolation = "bilinear"

    @classmethod
    def to(cls, side: int) -> "Fitting":
        """Return the usual fitting for a side in pixels: 256 then 224 for ImageNet, in proportion for others.

        >>> Fitting.to(224)
        Fitting(side=224, resize=256, interpolation='bilinear')
        """
        if side < 1:
            raise TTCError(f"the image size must be at least 1 pixel, got {side}")
        return cls(side, round(side * 256 / 224))


def read_rgb(path: Path, fitting: Fitting | None = None) -> Pixels:
    """Decode one image file to RGB pixels (H, W, 3).

    Greyscale, palette, CMYK and 16-bit images are converted; transparency is dropped. An image of the side of
    ``fitting`` is never resampled.

    Args:
        path: The image file.
        fitting: How to resize and crop it; None keeps its size.

    Returns:
        uint8 pixels.

    Raises:
        TTCError: The file cannot be read as an image.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # large images are resized, not rejected
            with Image.open(path) as image:
                rgb = _convert(image)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        reason = "not an image file" if isinstance(error, UnidentifiedImageError) else str(error) or "damaged"
        raise TTCError(f"cannot read the image {path} ({reason}): remove or replace it") from error
    return np.asarray(rgb if fitting is None else _fit(rgb, fitting))


def _convert(image: Image.Image) -> Image.Image:
    """Convert to 8-bit RGB; Pillow alone would clip 16-bit values at 255 instead of scaling them."""
    image.load()
    if image.mode.startswith("I"):
        values = np.asarray(image).astype(np.int64)
        if values.min() < 0 or values.max() > 65535:
            raise ValueError("integer values beyond 16 bits")
        return Image.fromarray((values >> 8).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise ValueError("floating-point values, whose range is unknown")
    if image.mode == "P" and "transparency" in image.info:
        return image.convert("RGBA").convert("RGB")
    return image.convert("RGB")


def _fit(rgb: Image.Image, fitting: Fitting) -> Image.Image:
    side = fitting.side
    if rgb.size == (side, side):
        return rgb
    scale = fitting.resize / min(rgb.size)
    wide, high = (max(side, round(length * scale)) for length in rgb.size)
    left, top = (wide - side) // 2, (high - side) // 2
    resized = rgb.resize((wide, high), _FILTERS[fitting.interpolation])
    return resized.crop((left, top, left + side, top + side))
