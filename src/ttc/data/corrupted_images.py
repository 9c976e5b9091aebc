"""Any clean dataset, corrupted on the fly or from a cache on disk."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ttc.data.images import Images, Indices, Labels, Pixels, validate_indices
from ttc.data.location import unwritable
from ttc.files import atomic

if TYPE_CHECKING:
    from ttc.corruptions.severity_tables import TableName  # reading clean data must not wait for torch

CHUNK = 256  # pictures corrupted at once while a cache is filled


@dataclass(frozen=True, eq=False)
class CorruptedImages:
    """Pictures corrupted when asked for; each depends on its own index, never on the batch it is asked in.

    The checksum covers the clean data's checksum, the settings, and what the generator makes of the first picture:
    a changed generator gives another checksum, so results and caches of the old one are never taken for the new.
    """

    images: Images
    corruption: str
    severity: int
    seed: int = 0
    table: "TableName | None" = None
    stored: Pixels | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return f"{self.images.name} {self.corruption} {self.severity}"

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
        return corrupt(clean, self.corruption, self.severity, table=self.table, seed=self.seed, indices=index)

    @cached_property
    def checksum(self) -> str:
        settings = f"{self.images.checksum} {self.corruption} {self.severity} {self.seed} {self.table}"
        return hashlib.sha256(settings.encode() + self.pixels([0]).tobytes()).hexdigest()


def corrupt_images(
    images: Images,
    corruption: str,
    severity: int,
    seed: int = 0,
    table: "TableName | None" = None,
    cache: Path | None = None,
    advance: Callable[[int], None] | None = None,
) -> Images:
    """``images`` with one corruption; with a ``cache`` directory all are made now, once, and read back from disk.

    ``advance`` is told how many pictures were made, each time some were, while the cache is being filled.
    """
    made = CorruptedImages(images, corruption, severity, seed, table)
    if cache is None:
        made.pixels([0])  # a wrong name or severity is refused here, not in the middle of a run
        return made
    path = cache / f"{corruption}-{severity}-{made.checksum[:16]}.npy"
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
