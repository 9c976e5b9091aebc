"""The source split: which clean images a method that needs source images gets, never one of the evaluated stream."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ttc import data
from ttc.data.images import Images, Indices, Labels, Pixels, subset_indices, validate_indices
from ttc.errors import TTCError

REST = "clean"  # the clean images of the evaluated dataset that are not in the stream
TRAINING: dict[str, Callable[[Path], Images]] = {
    "cifar10-train": lambda root: data.cifar(root, "cifar10", train=True),
    "cifar100-train": lambda root: data.cifar(root, "cifar100", train=True),
}


class SplitName(NamedTuple):
    """A source split as it is written: ``clean``, ``clean:500``, ``cifar10-train:2000``, ``imagefolder:PATH:200``.

    Args:
        dataset: ``clean`` or the name of a dataset.
        size: How many images, None for as many as the method asks for.
    """

    dataset: str
    size: int | None

    @classmethod
    def read(cls, text: str) -> "SplitName":
        """Parse a source split.

        Raises:
            TTCError: If the number of images is zero.

        Example:
            >>> SplitName.read("clean:500")
            SplitName(dataset='clean', size=500)
            >>> SplitName.read("imagefolder:holiday/images").dataset
            'imagefolder:holiday/images'
        """
        name, _, count = text.rpartition(":")
        if not name or not count.isdigit():
            return cls(text, None)
        if int(count) < 1:
            raise TTCError(f"a source split has at least 1 image, got '{text}'")
        return cls(name, int(count))

    @property
    def label(self) -> str:
        """The dataset without its directory, so that a protocol is the same on every machine."""
        kind, _, path = self.dataset.partition(":")
        return f"{kind}:{Path(path).name}" if path else kind


@dataclass(frozen=True, eq=False)
class SourceSplit:
    """Clean images for methods that need source images; their labels are never shown to a method.

    Args:
        label: The split as the protocol states it, with the number of images.
        images: The dataset they are from.
        indices: Which of its images.
    """

    label: str
    images: Images
    indices: NDArray[np.int64]

    @property
    def name(self) -> str:
        """The dataset and the split."""
        return f"{self.images.name}, {self.label}"

    @property
    def labels(self) -> Labels:
        """The labels, for checks alone."""
        return self.images.labels[self.indices]

    @property
    def num_classes(self) -> int:
        """The number of classes of the dataset."""
        return self.images.num_classes

    @cached_property
    def checksum(self) -> str:
        """The checksum of the dataset and the indices."""
        return hashlib.sha256(self.images.checksum.encode() + self.indices.tobytes()).hexdigest()

    def __len__(self) -> int:
        return len(self.indices)

    def pixels(self, indices: Indices) -> Pixels:
        """Return images by their place in the split: uint8 (B, H, W, 3)."""
        return self.images.pixels(self.indices[validate_indices(self.name, indices, len(self))])


def remaining_images(whole: Images, evaluated: int, by_class: bool, name: SplitName, asked: int) -> SourceSplit:
    """Return clean images of a dataset that are not in the evaluated stream.

    Args:
        whole: All clean images of the dataset.
        evaluated: How many of them the stream has.
        by_class: Whether the dataset is sorted by class, so that subsets are spread over it.
        name: The split as the user wrote it.
        asked: How many images the method asks for; fewer are taken where there are no more.

    Raises:
        TTCError: If there are no images left, or fewer than the user wrote.
    """
    rest = np.setdiff1d(np.arange(len(whole)), subset_indices(len(whole), evaluated, by_class))
    advice = "evaluate fewer with --images, or name another dataset with --source-split, such as cifar10-train:2000"
    if not len(rest):
        raise TTCError(
            f"no clean image of {whole.name} is left for the source split: all {len(whole):,} are in the stream; "
            f"{advice}"
        )
    if name.size is not None and name.size > len(rest):
        raise TTCError(
            f"the source split {name.dataset}:{name.size} needs {name.size:,} images and {len(rest):,} of "
            f"{whole.name} are not in the stream; {advice}"
        )
    return _spread(f"{REST}:", whole, rest, min(name.size or asked, len(rest)))


def other_images(split: Images, evaluated: Images, name: SplitName, asked: int) -> SourceSplit:
    """Return images of another dataset than the evaluated one.

    Args:
        split: The dataset of the split.
        evaluated: The clean images of the stream.
        name: The split as the user wrote it.
        asked: How many images the method asks for; fewer are taken where there are no more.

    Raises:
        TTCError: If an image is in the stream too, sizes differ, or there are fewer images than the user wrote.
    """
    if name.size is not None and name.size > len(split):
        raise TTCError(f"{split.name} has {len(split):,} images, {name.size:,} requested as source split")
    found = _spread(f"{name.label}:", split, np.arange(len(split)), min(name.size or asked, len(split)))
    shapes = [one.pixels([0]).shape[1:3] for one in (found, evaluated)]
    if shapes[0] != shapes[1]:
        raise TTCError(f"the source split has images of {shapes[0]} pixels, the stream of {shapes[1]}; they must agree")
    shown = {_digest(evaluated, index) for index in range(len(evaluated))}
    shared = sum(_digest(found, index) in shown for index in range(len(found)))
    if shared:
        raise TTCError(
            f"{shared:,} images of the source split {found.label} are in the evaluated stream too; "
            f"choose another dataset, or --source-split {REST} for images that are not"
        )
    return found


def _spread(label: str, images: Images, among: NDArray[np.int64], count: int) -> SourceSplit:
    """Take images at even distances, so that every class is present where a dataset is sorted by class."""
    return SourceSplit(f"{label}{count}", images, among[subset_indices(len(among), count, by_class=True)])


def _digest(images: Images, index: int) -> bytes:
    return hashlib.sha256(images.pixels([index]).tobytes()).digest()
