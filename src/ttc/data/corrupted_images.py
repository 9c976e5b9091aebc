"""Any clean dataset, corrupted on the fly or read from a cache on disk."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ttc.data.frost import describe_frost
from ttc.data.images import Images, Indices, Labels, Pixels, validate_indices
from ttc.data.location import unwritable
from ttc.files import atomic

if TYPE_CHECKING:
    from ttc.corruptions.severity_tables import TableName  # reading clean data must not import torch

CHUNK = 128  # images corrupted at once while a cache is filled: 19 MB at 224 x 224


@dataclass(frozen=True, eq=False)
class CorruptedImages:
    """Images corrupted on demand; each depends on its own index, never on the batch it is part of.

    The checksum covers the checksum of the clean data, the settings, and the first corrupted image: if the
    implementation of a corruption changes, so does the checksum, and outdated results and caches are not reused. The
    name and the checksum of frost tell which textures it has.
    """

    images: Images
    corruption: str
    severity: int
    seed: int = 0
    table: "TableName | None" = None
    frost_dir: Path | None = None
    stored: Pixels | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        textures = f" ({self.textures})" if self.textures else ""
        return f"{self.images.name} {self.corruption} {self.severity}{textures}"

    @cached_property
    def textures(self) -> str:
        """Which frost textures are used: ``procedural frost``, ``original frost`` …; empty for other corruptions."""
        return describe_frost(self.frost_dir) if self.corruption == "frost" else ""

    @property
    def labels(self) -> Labels:
        return self.images.labels

    @property
    def num_classes(self) -> int:
        return self.images.num_classes

    def __len__(self) -> int:
        return len(self.images)

    def pixels(self, indices: Indices) -> Pixels:
        index = validate_indices(self.name, indices, len(self))
        if self.stored is not None:
            return np.asarray(self.stored[index])
        from ttc.corruptions import corrupt

        clean = self.images.pixels(index)
        return corrupt(
            clean,
            self.corruption,
            self.severity,
            table=self.table,
            seed=self.seed,
            indices=index,
            frost_dir=self.frost_dir,
        )

    @cached_property
    def checksum(self) -> str:
        settings = f"{self.images.checksum} {self.corruption} {self.severity} {self.seed} {self.table} {self.textures}"
        return hashlib.sha256(settings.encode() + self.pixels([0]).tobytes()).hexdigest()


def corrupt_images(
    images: Images,
    corruption: str,
    severity: int,
    seed: int = 0,
    table: "TableName | None" = None,
    cache: Path | None = None,
    advance: Callable[[int], None] | None = None,
    frost_dir: Path | None = None,
) -> Images:
    """Corrupt a dataset, on demand or once into a cache on disk.

    Args:
        images: The clean dataset.
        corruption: The name of a corruption, such as ``"fog"``.
        severity: 1 … 5; 0 leaves the images unchanged.
        seed: The seed of the random numbers.
        table: The severity table, ``"cifar"`` or ``"imagenet"``; by default the one nearest to the image size.
        cache: A directory. If given, all images are corrupted now, unless a previous call did so, and read from there;
            memory holds a few batches, whatever the size of the dataset.
        advance: Called with the number of images just written while the cache is being filled.
        frost_dir: A folder with frost textures, such as :func:`frost_folder` returns; None for procedural ones.

    Returns:
        The corrupted dataset, with the labels and indices of ``images``.

    Raises:
        TTCError: The corruption, severity or table does not exist, or the cache cannot be written.

    Example:
        >>> from ttc.data import embedded, subset
        >>> corrupt_images(subset(embedded(), 8), "fog", severity=5).name
        'CIFAR-10 test, first 2,000[:8] fog 5'
    """
    made = CorruptedImages(images, corruption, severity, seed, table, frost_dir if corruption == "frost" else None)
    if cache is None:
        made.pixels([0])  # an invalid name or severity is rejected here, not in the middle of a run
        return made
    kind = f"-{made.textures.partition(' ')[0]}" if made.textures else ""
    path = cache / f"{corruption}{kind}-{severity}-{made.checksum[:16]}.npy"
    if not path.exists():
        try:
            _fill(path, made, advance)
        except OSError as error:
            raise unwritable(cache, error) from error
    array: Pixels = np.load(path, mmap_mode="r", allow_pickle=False)
    return replace(made, stored=array)


def _fill(path: Path, images: Images, advance: Callable[[int], None] | None) -> None:
    shape = (len(images), *images.pixels([0]).shape[1:])
    with atomic(path) as part:
        array = np.lib.format.open_memmap(part, mode="w+", dtype=np.uint8, shape=shape)
        for start in range(0, len(images), CHUNK):
            index = range(start, min(start + CHUNK, len(images)))
            array[start : index.stop] = images.pixels(index)
            if advance:
                advance(len(index))
        array.flush()
