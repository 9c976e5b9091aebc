"""Decode image files of any kind to 8-bit RGB, resized and cropped as a model expects."""

import warnings
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from ttc.data.images import Pixels
from ttc.errors import TTCError

Interpolation = Literal["bilinear", "bicubic"]
_FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
SMALL = 96  # networks for smaller images were trained on whole images, not on crops


class UnreadableImageError(TTCError):
    """A file that cannot be decoded; a batch job skips it and reports it at the end."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"cannot read the image {path} ({reason}): remove or replace it")
        self.reason = reason


class Fitting(NamedTuple):
    """How images are fitted to a model: resize the shorter side to ``resize``, then crop the centre to ``side``."""

    side: int
    resize: int
    interpolation: Interpolation = "bilinear"

    @classmethod
    def to(cls, side: int) -> "Fitting":
        """Return the usual fitting for a side in pixels: 256 then 224 for photographs, the whole image for small ones.

        >>> Fitting.to(224), Fitting.to(32)
        (Fitting(side=224, resize=256, interpolation='bilinear'), Fitting(side=32, resize=32, interpolation='bilinear'))
        """
        if side < 1:
            raise TTCError(f"the image size must be at least 1 pixel, got {side}")
        return cls(side, round(side * 256 / 224) if side >= SMALL else side)


def read_rgb(path: Path, fitting: Fitting | None = None) -> Pixels:
    """Decode one image file to RGB pixels (H, W, 3).

    Greyscale, palette, CMYK and 16-bit images are converted, photographs turned upright; transparency is dropped. An
    image of the side of ``fitting`` is never resampled.

    Args:
        path: The image file.
        fitting: How to resize and crop it; None keeps its size.

    Returns:
        uint8 pixels.

    Raises:
        UnreadableImageError: The file cannot be read as an image.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # large images are resized, and odd metadata does not matter
            with Image.open(path) as image:
                return to_rgb(image, fitting)
    except Exception as error:  # decoders raise any exception on damaged files
        raise UnreadableImageError(path, _reason(error)) from error


def to_rgb(image: Image.Image, fitting: Fitting | None = None) -> Pixels:
    """Convert an opened image to RGB pixels (H, W, 3), as :func:`read_rgb` does.

    Args:
        image: An image as Pillow opens it; it is decoded here.
        fitting: How to resize and crop it; None keeps its size.
    """
    rgb = _convert(image)
    return np.asarray(rgb if fitting is None else _fit(rgb, fitting))


def _convert(image: Image.Image) -> Image.Image:
    """Convert to 8-bit RGB; Pillow alone would clip 16-bit values at 255 instead of scaling them."""
    image = ImageOps.exif_transpose(image)
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


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not an image file"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text.partition("\n")[0] or "damaged"
