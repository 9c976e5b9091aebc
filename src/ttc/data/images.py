"""The dataset interface: labelled uint8 images of one size, read in batches."""

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
    """A labelled image dataset that loads any batch on demand, so memory does not grow with its size.

    A protocol: any class with these members works wherever ``ttc`` takes a dataset.
    """

    @property
    def name(self) -> str:
        """The name of the dataset in result tables."""

    @property
    def labels(self) -> Labels:
        """The class of each image, int64 (N,)."""

    @property
    def num_classes(self) -> int:
        """The number of classes K; labels are 0 … K-1."""

    @property
    def checksum(self) -> str:
        """A hex digest that changes when the data changes; computed once, on first use."""

    def __len__(self) -> int: ...

    def pixels(self, indices: Indices) -> Pixels:
        """Load the images at ``indices``.

        Args:
            indices: B positions in 0 … N-1, in any order.

        Returns:
            uint8 RGB pixels (B, H, W, 3).
        """


@dataclass(frozen=True, eq=False)
class ArrayImages:
    """A dataset backed by one array, in memory or memory-mapped; the checksum covers every byte.

    Args:
        name: The name of the dataset in result tables.
        array: uint8 RGB pixels (N, H, W, 3).
        labels: The class of each image, int64 (N,).
        num_classes: The number of classes K.

    Raises:
        TTCError: The array or the labels have another shape or type, or a label is outside 0 … K-1.

    Example:
        >>> images = ArrayImages("mine", np.zeros((2, 32, 32, 3), np.uint8), np.array([0, 1]), num_classes=2)
        >>> len(images), images.pixels([1]).shape
        (2, (1, 32, 32, 3))
    """

    name: str
    array: Pixels = field(repr=False)
    labels: Labels = field(repr=False)
    num_classes: int

    def __post_init__(self) -> None:
        if self.array.ndim != 4 or self.array.shape[3] != 3 or self.array.dtype != np.uint8:
            raise TTCError(
                f"{self.name}: expected uint8 images of shape (N, H, W, 3), got {self.array.dtype} {self.array.shape}"
            )
        if self.labels.shape != self.array.shape[:1]:
            raise TTCError(
                f"{self.name}: {len(self.array)} images but labels of shape {self.labels.shape}; "
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
class SubsetImages:
    """``count`` images of another dataset: the first ones, or evenly spaced ones where it is sorted by class."""

    images: Images
    count: int
    by_class: bool = False

    @property
    def name(self) -> str:
        return f"{self.images.name}{self._range}"

    @property
    def labels(self) -> Labels:
        return self.images.labels[self._indices]

    @property
    def num_classes(self) -> int:
        return self.images.num_classes

    @property
    def checksum(self) -> str:
        return hashlib.sha256(f"{self.images.checksum}{self._range}".encode()).hexdigest()

    def __len__(self) -> int:
        return self.count

    def pixels(self, indices: Indices) -> Pixels:
        return self.images.pixels(self._indices[validate_indices(self.name, indices, self.count)])

    @property
    def _range(self) -> str:
        return f"[{self.count} spread]" if self.by_class else f"[:{self.count}]"

    @property
    def _indices(self) -> NDArray[np.int64]:
        return subset_indices(len(self.images), self.count, self.by_class)


def subset_indices(total: int, count: int, by_class: bool = False) -> NDArray[np.int64]:
    """Return which of ``total`` images a subset has: the first ones, or evenly spaced ones.

    >>> subset_indices(10, 3).tolist(), subset_indices(10, 3, by_class=True).tolist()
    ([0, 1, 2], [0, 3, 6])
    """
    index = np.arange(count, dtype=np.int64)
    return index * total // count if by_class else index


def subset(images: Images, count: int, by_class: bool = False) -> Images:
    """Take ``count`` of the images.

    Args:
        images: The whole dataset.
        count: How many to take, 1 to all.
        by_class: The dataset is sorted by class: take images at even distances, so that every class is present,
            instead of the first ones.

    Returns:
        The subset; ``images`` itself if it is all of them.

    Raises:
        TTCError: If there are not that many images.
    """
    if not 1 <= count <= len(images):
        raise TTCError(f"{images.name} has {len(images):,} images, {count:,} requested: choose 1 to {len(images)}")
    return images if count == len(images) else SubsetImages(images, count, by_class)


def as_tensor(pixels: Pixels) -> "Tensor":
    """Convert pixels to the input of the models of ``ttc``: a tensor in [0, 1], channels-last in memory.

    Args:
        pixels: uint8 (B, H, W, 3).

    Returns:
        float32 (B, 3, H, W).

    Example:
        >>> as_tensor(np.full((2, 4, 4, 3), 255, np.uint8)).shape
        torch.Size([2, 3, 4, 4])
    """
    import torch

    return torch.tensor(pixels).permute(0, 3, 1, 2).float().div_(255)


def validate_labels(name: str, labels: Labels, num_classes: int) -> None:
    """Reject labels outside 0 … K-1, which would silently count as errors."""
    if len(labels) and not (labels.min() >= 0 and labels.max() < num_classes):
        wrong = labels.min() if labels.min() < 0 else labels.max()
        raise TTCError(
            f"{name}: labels must lie in 0 … {num_classes - 1}, found {wrong}; the file is damaged or belongs to "
            "another dataset: run ttc data verify"
        )


def validate_indices(name: str, indices: Indices, count: int) -> NDArray[np.intp]:
    """Return the indices as an array; reject any outside 0 … count-1, as a negative one would read from the end."""
    index = np.asarray(indices, dtype=np.intp)
    if index.size and not (index.min() >= 0 and index.max() < count):
        raise IndexError(f"{name} has {count} images, requested {index.min()} … {index.max()}")
    return index
