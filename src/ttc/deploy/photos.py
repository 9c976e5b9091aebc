"""Photographs as people have them: of any size, mode and orientation, and some of them unreadable."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from ttc.data.images import Indices, Labels, Pixels, validate_indices
from ttc.errors import TTCError, unknown

INTERPOLATIONS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
SMALL = 96  # networks for smaller images were trained on whole images, not on crops
SAMPLED = 200  # files whose size is read to compare it with the model's


class UnreadableImageError(TTCError):
    """A file that cannot be decoded; a batch job skips it and reports it at the end."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"cannot read the image {path} ({reason}): remove or replace it")
        self.reason = reason


class Preprocessing(NamedTuple):
    """How an image becomes the input of a model: the shorter side is resized to ``size / crop``, the centre cropped.

    Args:
        size: The side of the model's input in pixels; None keeps images as they are.
        crop: The fraction of the resized image's side that remains.
        interpolation: A key of ``INTERPOLATIONS``.
    """

    size: int | None = None
    crop: float = 1.0
    interpolation: str = "bilinear"

    @classmethod
    def for_size(cls, size: int) -> "Preprocessing":
        """Return the usual preprocessing for a size: 7/8 of the side for photographs, all of it for small images.

        Example:
            >>> Preprocessing.for_size(224).crop, Preprocessing.for_size(32).crop
            (0.875, 1.0)
        """
        return cls(size, 0.875 if size >= SMALL else 1.0)

    def apply(self, image: Image.Image) -> Image.Image:
        """Fit an image to the size; one that has it already is not resampled."""
        size = self.size
        if size is None or image.size == (size, size):
            return image
        if self.interpolation not in INTERPOLATIONS:
            raise unknown("interpolation", self.interpolation, INTERPOLATIONS)
        scale = round(size / self.crop) / min(image.size)
        wide, high = (max(size, round(side * scale)) for side in image.size)
        left, top = (wide - size) // 2, (high - size) // 2
        resized = image.resize((wide, high), INTERPOLATIONS[self.interpolation])
        return resized.crop((left, top, left + size, top + size))


@dataclass(frozen=True, eq=False)
class PhotoImages:
    """Image files decoded on demand.

    Args:
        name: The name of the set.
        root: The folder they are in.
        files: The files.
        known_labels: The class of each, None where there are no labels.
        classes: The names of the classes.
        preprocessing: How they become the model's input.
    """

    name: str
    root: Path
    files: Sequence[Path] = field(repr=False)
    known_labels: Labels | None = field(repr=False, default=None)
    classes: tuple[str, ...] = field(repr=False, default=())
    preprocessing: Preprocessing = field(default_factory=Preprocessing)

    @cached_property
    def labels(self) -> Labels:
        return np.zeros(len(self), np.int64) if self.known_labels is None else self.known_labels

    @property
    def num_classes(self) -> int:
        return max(1, len(self.classes))

    @property
    def checksum(self) -> str:
        raise TTCError("photographs of a batch job have no checksum: open them with ttc.data.image_folder")

    def __len__(self) -> int:
        return len(self.files)

    def prepared(self, preprocessing: Preprocessing) -> "PhotoImages":
        """Return the same files with another preprocessing."""
        return replace(self, preprocessing=preprocessing)

    def pixels(self, indices: Indices) -> Pixels:
        """Decode the images at ``indices``.

        Raises:
            UnreadableImageError: If a file cannot be decoded.
            TTCError: If the images differ in size and the preprocessing has none.
        """
        paths = [self.files[i] for i in validate_indices(self.name, indices, len(self))]
        images = [read_photo(path, self.preprocessing) for path in paths]
        return np.stack(images)

    def sizes(self, most: int | None = SAMPLED) -> list[tuple[int, int]]:
        """Read the (width, height) of the files, evenly spaced ones if there are more than ``most``."""
        step = 1 if most is None else max(1, len(self) // most)
        found = []
        for path in self.files[::step]:
            try:
                with _quiet(), Image.open(path) as image:
                    found.append(image.size)
            except Exception:  # reported when it is its turn
                continue
        return found


def read_photo(path: Path, preprocessing: Preprocessing) -> Pixels:
    """Decode one file to RGB, upright, and fit it to the model's input.

    Raises:
        UnreadableImageError: If it cannot be decoded.
    """
    try:
        with _quiet(), Image.open(path) as file:
            image = ImageOps.exif_transpose(file)
            rgb = _scaled_to_8_bits(image).convert("RGB")
    except Exception as error:  # decoders raise any exception on damaged files
        raise UnreadableImageError(path, _reason(error)) from error
    return np.asarray(preprocessing.apply(rgb))


def _scaled_to_8_bits(image: Image.Image) -> Image.Image:
    """Scale 16-bit images, which Pillow would clip to white."""
    if not image.mode.startswith("I"):
        return image
    values = np.asarray(image)
    if values.min() < 0 or values.max() > 65535:
        raise ValueError(f"{image.mode} image with values beyond 16 bits")
    return Image.fromarray((values >> 8).astype(np.uint8))


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Pillow's remarks about large images and odd metadata: what matters is whether the file can be decoded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not an image, or damaged"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text.partition("\n")[0] or type(error).__name__
