"""Photographs as people have them: of any size, mode and orientation, and some of them unreadable."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from PIL import Image

from ttc.data.decoding import Fitting, read_rgb
from ttc.data.images import Indices, Labels, Pixels, validate_indices
from ttc.errors import TTCError

SAMPLED = 200  # files whose size is read to compare it with the model's


@dataclass(frozen=True, eq=False)
class PhotoImages:
    """Image files decoded on demand.

    Args:
        name: The name of the set.
        root: The folder they are in.
        files: The files.
        known_labels: The class of each, None where there are no labels.
        classes: The names of the classes.
        fitting: How they are fitted to the model; None keeps their size.
    """

    name: str
    root: Path
    files: Sequence[Path] = field(repr=False)
    known_labels: Labels | None = field(repr=False, default=None)
    classes: tuple[str, ...] = field(repr=False, default=())
    fitting: Fitting | None = None

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

    def fitted(self, fitting: Fitting | None) -> "PhotoImages":
        """Return the same files, fitted to another model."""
        return replace(self, fitting=fitting)

    def pixels(self, indices: Indices) -> Pixels:
        """Decode the images at ``indices``.

        Raises:
            UnreadableImageError: If a file cannot be decoded.
        """
        paths = [self.files[i] for i in validate_indices(self.name, indices, len(self))]
        return np.stack([read_rgb(path, self.fitting) for path in paths])

    def sizes(self, most: int | None = SAMPLED) -> list[tuple[int, int]]:
        """Read the (width, height) of the files, evenly spaced ones if there are more than ``most``."""
        step = 1 if most is None else max(1, len(self) // most)
        found = []
        for path in self.files[::step]:
            try:
                with warnings.catch_warnings(), Image.open(path) as image:
                    warnings.simplefilter("ignore")
                    found.append(image.size)
            except Exception:  # reported when it is its turn
                continue
        return found
