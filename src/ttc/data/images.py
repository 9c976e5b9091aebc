"""What every dataset here is: labelled uint8 pictures of one size, read a batch at a time."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ttc.errors import TTCError

if TYPE_CHECKING:
    from torch import Tensor  # listing and fetching data must not wait for torch

Pixels = NDArray[np.uint8]  # (B, H, W, 3), RGB
Labels = NDArray[np.int64]  # (N,)
Indices = Sequence[int] | NDArray[np.integer[Any]]


class Images(Protocol):
    """Labelled pictures: any batch of them on demand, so that memory stays flat whatever the number."""

    @property
    def name(self) -> str:
        """What a results table calls the data."""

    @property
    def labels(self) -> Labels:
        """The class of each picture, int64 (N,)."""

    @property
    def num_classes(self) -> int:
        """K: labels are 0 … K-1."""

    @property
    def checksum(self) -> str:
        """A hex digest that changes when the data does; computed once, at first use."""

    def __len__(self) -> int: ...

    def pixels(self, indices: Indices) -> Pixels:
        """The pictures at ``indices``: uint8 (B, H, W, 3)."""


@dataclass(frozen=True, eq=False)
class ArrayImages:
    """Pictures held in one uint8 array (N, H, W, 3), in memory or memory-mapped; the checksum covers every byte."""

    name: str
    array: Pixels = field(repr=False)
    labels: Labels = field(repr=False)
    num_classes: int

    def __post_init__(self) -> None:
        if self.array.ndim != 4 or self.array.shape[3] != 3 or self.array.dtype != np.uint8:
            raise TTCError(
                f"{self.name}: expected uint8 pictures of shape (N, H, W, 3), got {self.array.dtype} {self.array.shape}"
            )
        if self.labels.shape != self.array.shape[:1]:
            raise TTCError(
                f"{self.name}: {len(self.array)} pictures but labels of shape {self.labels.shape}; "
                "the files belong to different datasets or one is damaged: run ttc data verify"
            )
        validate_labels(self.name, self.labels, self.num_classes)

    def __len__(self) -> int:
        return len(self.array)

    def pixels(self, indices: Indices) -> Pixels:
        return np.asarray(self.array[validate_indices(self.name, indices, len(self))])

    @cached_property
    def checksum(self) -> str:
        digest = hashlib.sha256(self.labels.tobytes())
        for start in range(0, len(self), 1024):
            digest.update(self.array[start : start + 1024].tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class FirstImages:
    """The first ``count`` pictures of another dataset."""

    images: Images
    count: int

    @property
    def name(self) -> str:
        return f"{self.images.name}[:{self.count}]"

    @property
    def labels(self) -> Labels:
        return self.images.labels[: self.count]

    @property
    def num_classes(self) -> int:
        return self.images.num_classes

    @property
    def checksum(self) -> str:
        return hashlib.sha256(f"{self.images.checksum}[:{self.count}]".encode()).hexdigest()

    def __len__(self) -> int:
        return self.count

    def pixels(self, indices: Indices) -> Pixels:
        return self.images.pixels(validate_indices(self.name, indices, self.count))


def first(images: Images, count: int) -> Images:
    """The first ``count`` pictures of ``images``, in the same order and with the same indices."""
    if not 1 <= count <= len(images):
        raise TTCError(f"{images.name} has {len(images):,} images, {count:,} were asked for: choose 1 to {len(images)}")
    return images if count == len(images) else FirstImages(images, count)


def as_tensor(pixels: Pixels) -> "Tensor":
    """The pictures as float32 (B, 3, H, W) in [0, 1], channels-last in memory: what every model here takes.

    >>> as_tensor(np.full((2, 4, 4, 3), 255, np.uint8)).shape
    torch.Size([2, 3, 4, 4])
    """
    import torch

    return torch.tensor(pixels).permute(0, 3, 1, 2).float().div_(255)


def validate_labels(name: str, labels: Labels, num_classes: int) -> None:
    """Refuse labels outside 0 … K-1: they would count as errors silently."""
    if len(labels) and not (labels.min() >= 0 and labels.max() < num_classes):
        wrong = labels.min() if labels.min() < 0 else labels.max()
        raise TTCError(
            f"{name}: labels must lie in 0 … {num_classes - 1}, found {wrong}; the file is damaged or belongs to "
            "another dataset: run ttc data verify"
        )


def validate_indices(name: str, indices: Indices, count: int) -> NDArray[np.intp]:
    """The indices as an array, each of them in 0 … count-1: a negative one would quietly read from the end."""
    index = np.asarray(indices, dtype=np.intp)
    if index.size and not (index.min() >= 0 and index.max() < count):
        raise IndexError(f"{name} has {count} images; asked for {index.min()} … {index.max()}")
    return index
