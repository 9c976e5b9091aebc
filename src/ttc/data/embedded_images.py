"""The images included in the package, so that everything runs offline: the first 2,000 test images of CIFAR-10."""

import io
from functools import cache
from importlib.resources import files

import numpy as np
from PIL import Image

from ttc.data.images import ArrayImages, Pixels

COLUMNS = 50  # images in a row of the mosaic
NAME = "cifar10-test-2000"


@cache
def embedded() -> ArrayImages:
    """Load the images included in the package: the first 2,000 test images of CIFAR-10 (Krizhevsky, 2009).

    Returns:
        The dataset, cached between calls: 10 classes with about 200 images per class.

    Example:
        >>> embedded().pixels(range(4)).shape
        (4, 32, 32, 3)
    """
    folder = files("ttc.data") / "default"
    pixels = from_mosaic((folder / f"{NAME}.png").read_bytes())
    labels = np.frombuffer((folder / f"{NAME}.labels").read_bytes(), np.uint8).astype(np.int64)
    return ArrayImages("CIFAR-10 test, first 2,000", pixels, labels, 10)


def mosaic(pixels: Pixels) -> bytes:
    """Encode images (N, H, W, 3), N a multiple of 50, as one PNG: lossless and a third smaller than the raw bytes.

    >>> images = np.arange(100 * 2 * 2 * 3, dtype=np.uint16).astype(np.uint8).reshape(100, 2, 2, 3)
    >>> bool((from_mosaic(mosaic(images), side=2) == images).all())
    True
    """
    count, height, width, _ = pixels.shape
    grid = pixels.reshape(count // COLUMNS, COLUMNS, height, width, 3).transpose(0, 2, 1, 3, 4)
    stream = io.BytesIO()
    Image.fromarray(grid.reshape(-1, COLUMNS * width, 3)).save(stream, "png", optimize=True)
    return stream.getvalue()


def from_mosaic(png: bytes, side: int = 32) -> Pixels:
    """Decode the images (N, side, side, 3) of a PNG written by :func:`mosaic`."""
    grid = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
    rows = grid.reshape(-1, side, COLUMNS, side, 3).transpose(0, 2, 1, 3, 4)
    return np.ascontiguousarray(rows.reshape(-1, side, side, 3))
