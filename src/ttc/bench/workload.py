"""What is benchmarked: which images and which model, from the names a user gives."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import nn

from ttc import data, models
from ttc.bench.spec import nearest
from ttc.data import Images
from ttc.data.images import Indices, Labels, Pixels, validate_indices
from ttc.errors import TTCError

CLEAN = "clean"  # stands among the corruptions for the images as they are, severity 0


@dataclass(frozen=True)
class Workload:
    """The names of a data set and a model, and where files are; a worker process makes the same of it.

    ``dataset`` is a key of ``DATASETS`` or ``folder:PATH`` with class folders, ``folder:PATH@224`` to fit the pictures.
    ``model`` is ``embedded`` or a name that :func:`ttc.models.build` knows; those of the zoo need a ``checkpoint``,
    a path from the data directory ``root`` or from here.
    """

    dataset: str = "embedded"
    model: str = "embedded"
    checkpoint: Path | None = None
    root: Path | None = None

    @property
    def cache(self) -> Path:
        """Where corrupted images and source predictions are kept."""
        return data.data_root(self.root) / "cache"

    @property
    def dataset_name(self) -> str:
        """The data set without the place it lies in, so that a protocol is the same on every machine."""
        kind, _, path = self.dataset.partition(":")
        return f"{kind}:{Path(path).name}" if path else kind

    def domain(self, corruption: str, severity: int, images: int | None, cache: Path | None = None) -> Images:
        """The images of one corruption: at most ``images`` of them, kept below ``cache`` once made."""
        return _domain(self._located(), corruption, severity, images, cache)

    def network(self, num_classes: int, dtype: str = "float32", device: str = "cpu") -> nn.Module:
        """The source model, ready to be adapted; shared, as adapters work on copies."""
        return _network(self._located(), num_classes, dtype, device)

    def network_checksum(self, num_classes: int) -> str:
        """The SHA-256 of the model's parameters and buffers."""
        return _network_checksum(self._located(), num_classes)

    def _located(self) -> "Subject":
        """With absolute paths, so that what is kept for it in memory does not depend on the current directory."""
        kind, _, path = self.dataset.partition(":")
        dataset = f"{kind}:{Path(path).absolute()}" if path else kind
        root, checkpoint = data.data_root(self.root), self.checkpoint
        if checkpoint is not None:
            checkpoint = root / checkpoint if (root / checkpoint).exists() else checkpoint.absolute()
        return replace(self, dataset=dataset, checkpoint=checkpoint, root=root)


@dataclass(frozen=True, eq=False)
class EvenlySpacedImages:
    """Pictures at even distances in a data set that is sorted by class, so that every class is there."""

    images: Images
    count: int

    @property
    def name(self) -> str:
        return f"{self.images.name}[{self.count} spread]"

    @property
    def labels(self) -> Labels:
        return self.images.labels[self._places]

    @property
    def num_classes(self) -> int:
        return self.images.num_classes

    @property
    def checksum(self) -> str:
        return hashlib.sha256(f"{self.images.checksum}[{self.count} spread]".encode()).hexdigest()

    def __len__(self) -> int:
        return self.count

    def pixels(self, indices: Indices) -> Pixels:
        return self.images.pixels(self._places[validate_indices(self.name, indices, self.count)])

    @property
    def _places(self) -> Labels:
        return np.arange(self.count, dtype=np.int64) * len(self.images) // self.count


@dataclass(frozen=True)
class _Dataset:
    clean: Callable[[Path], Images]
    published: Callable[[Path, str, int], Images] | None = None  # None: corrupted here
    by_class: bool = False  # sorted by class: a part of it is spread over the whole


DATASETS: dict[str, _Dataset] = {
    "embedded": _Dataset(lambda root: data.embedded()),
    "cifar10": _Dataset(lambda root: data.cifar(root, "cifar10")),
    "cifar100": _Dataset(lambda root: data.cifar(root, "cifar100")),
    "cifar10-c": _Dataset(
        lambda root: data.cifar(root, "cifar10"), lambda root, *which: data.cifar_c(root, "cifar10", *which)
    ),
    "cifar100-c": _Dataset(
        lambda root: data.cifar(root, "cifar100"), lambda root, *which: data.cifar_c(root, "cifar100", *which)
    ),
    "imagenet": _Dataset(data.imagenet, by_class=True),
    "imagenet-c": _Dataset(data.imagenet, data.imagenet_c, by_class=True),
}


def _dataset(name: str) -> _Dataset:
    kind, _, place = name.partition(":")
    if kind == "folder" and place:
        path, _, size = place.rpartition("@")
        if path and size.isdigit():
            return _Dataset(lambda root: data.image_folder(Path(path), int(size)), by_class=True)
        return _Dataset(lambda root: data.image_folder(Path(place)), by_class=True)
    if name not in DATASETS:
        known = ", ".join(DATASETS)
        raise TTCError(f"there is no data set '{name}'{nearest(name, DATASETS)}; choose {known} or folder:PATH")
    return DATASETS[name]


@lru_cache(maxsize=4)
def _clean(dataset: str, root: Path) -> Images:
    return _dataset(dataset).clean(root)


@lru_cache(maxsize=256)
def _domain(workload: Workload, corruption: str, severity: int, images: int | None, cache: Path | None) -> Images:
    chosen, root = _dataset(workload.dataset), data.data_root(workload.root)
    if corruption == CLEAN or chosen.published is None:
        part = _part(_clean(workload.dataset, root), images, chosen.by_class)
        return part if corruption == CLEAN else data.corrupt_images(part, corruption, severity, cache=cache)
    return _part(chosen.published(root, corruption, severity), images, chosen.by_class)


def _part(images: Images, count: int | None, by_class: bool) -> Images:
    if count is None or count == len(images):
        return images
    return EvenlySpacedImages(images, len(data.first(images, count))) if by_class else data.first(images, count)


@lru_cache(maxsize=2)
def _network(workload: Workload, num_classes: int, dtype: str, device: str) -> nn.Module:
    if workload.checkpoint is None and workload.model in models.MODELS:
        raise TTCError(f"the model '{workload.model}' comes without weights; give them with --checkpoint FILE")
    classes = None if workload.model == "embedded" else num_classes  # its ten, of which the data may have fewer
    network = models.build(workload.model, classes, workload.checkpoint)
    try:
        return network.to(device, getattr(torch, dtype)).eval()
    except (RuntimeError, AssertionError) as error:
        raise TTCError(f"the device '{device}' cannot be used: {str(error).splitlines()[0]}") from error


@lru_cache(maxsize=2)
def _network_checksum(workload: Workload, num_classes: int) -> str:
    network, digest = workload.network(num_classes), hashlib.sha256()
    for name, tensor in [*network.named_parameters(), *network.named_buffers()]:
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
