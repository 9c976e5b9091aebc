"""A workload in Ray's object store: the images of each domain and the model, put there once for all cells."""

import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ttc import data
from ttc.bench import method_specs
from ttc.bench.executors import TaskResult
from ttc.bench.grid import domains_of
from ttc.bench.precision import stored_type
from ttc.bench.protocol import Protocol
from ttc.bench.ray_executor import RayExecutor, Submitted, fetch, reference_key
from ttc.bench.scenarios import CLEAN, Domain
from ttc.bench.source_split import SourceSplit
from ttc.bench.workload import ResolvedWorkload
from ttc.data.images import Images, Indices, Labels, Pixels, validate_indices
from ttc.errors import TTCError

CHUNK = 512  # images decoded at once while they are stored


@dataclass(frozen=True, eq=False)
class StoredImages:
    """A dataset as one array with the checksum of what it was made from: a view of the object store in a task.

    Args:
        name: The name of the dataset.
        array: uint8 RGB pixels (N, H, W, 3).
        labels: The class of each image.
        num_classes: The number of classes.
        checksum: The checksum of the dataset.
    """

    name: str
    array: Pixels = field(repr=False)
    labels: Labels = field(repr=False)
    num_classes: int
    checksum: str

    def __len__(self) -> int:
        return len(self.array)

    def pixels(self, indices: Indices) -> Pixels:
        """Return the images at ``indices``."""
        return np.asarray(self.array[validate_indices(self.name, indices, len(self))])

    @classmethod
    def of(cls, images: Images | SourceSplit) -> "StoredImages":
        """Load all images of a dataset."""
        first = images.pixels([0])
        array = np.empty((len(images), *first.shape[1:]), np.uint8)
        for start in range(0, len(images), CHUNK):
            index = range(start, min(start + CHUNK, len(images)))
            array[start : index.stop] = images.pixels(index)
        return cls(images.name, array, images.labels, images.num_classes, images.checksum)


@dataclass(frozen=True, eq=False)
class ShippedWorkload:
    """What one cell needs, as references: the interface of :class:`ResolvedWorkload` that a cell uses.

    Args:
        domains: The images of the cell's domains.
        model: The source model.
        split: The source split, for a method that needs source images.
        split_label: How the protocol states it.
    """

    domains: dict[tuple[Domain, int | None], Any]
    model: Any
    split: Any = None
    split_label: str = ""

    @property
    def cache(self) -> Path | None:
        """None: a node has no directory of the driver, so SOURCE predicts anew in each of its cells."""
        return None

    def domain(self, domain: Domain, images: int | None, *, cached: bool = False) -> Images:
        """Return the images of a domain."""
        found: Images = fetch(self.domains[domain, images])
        return found

    def source_split(self, images: int, asked: int) -> SourceSplit:
        """Return the source split."""
        found: StoredImages = fetch(self.split)
        return _StoredSplit(self.split_label, found, np.arange(len(found)))

    def network(self, num_classes: int, dtype: str = "float32", device: str = "cpu") -> nn.Module:
        """Return the source model; adapters copy it.

        Raises:
            TTCError: If the device cannot be used.
        """
        key = (reference_key(self.model), dtype, device)
        if key not in _NETWORKS:
            _NETWORKS.clear()  # one per process
            network: nn.Module = fetch(self.model)
            try:
                _NETWORKS[key] = network.to(device, stored_type(dtype)).eval()
            except (RuntimeError, AssertionError) as error:
                raise TTCError(f"the device '{device}' cannot be used: {str(error).splitlines()[0]}") from error
        return _NETWORKS[key]


_NETWORKS: dict[tuple[str, str, str], nn.Module] = {}


class _StoredSplit(SourceSplit):
    """A source split that was stored as it is: its checksum is that of the images."""

    @property
    def checksum(self) -> str:
        return self.images.checksum


def ship(
    executor: RayExecutor, workload: ResolvedWorkload, cells: Sequence[Protocol]
) -> Generator[TaskResult, None, Callable[[Protocol], ShippedWorkload]]:
    """Put what cells share into the object store; images are corrupted on the cluster.

    Args:
        executor: The cluster.
        workload: The data and the model, which only this process needs to have.
        cells: The cells that will run.

    Yields:
        The result of each domain that was corrupted.

    Returns:
        A function from a cell to its workload.

    Raises:
        TTCError: If the images of one cell do not fit into the object store of a node.
    """
    executor.modules = module_sources([workload.names.model, *(cell.method for cell in cells)])
    _check_size(executor, workload, cells)
    shipment = _Shipment(executor, workload)
    for cell in cells:
        shipment.add(cell)
    yield from executor.finished(shipment.submitted)
    return shipment.workload_of


class _Shipment:
    """References to what was shipped, each thing once."""

    def __init__(self, executor: RayExecutor, workload: ResolvedWorkload) -> None:
        self.executor, self.workload = executor, workload
        self.submitted: list[Submitted] = []
        self.domains: dict[tuple[Domain, int | None], Any] = {}
        self.models: dict[int, Any] = {}
        self.splits: dict[tuple[int, int], Any] = {}

    def add(self, cell: Protocol) -> None:
        for domain in domains_of(cell):
            self._add_domain(domain, cell.images)
        classes = self._classes(cell)
        if classes not in self.models:
            self.models[classes] = self.executor.put(self.workload.network(classes))
        if cell.source_split and self._split_key(cell) not in self.splits:
            split = self.workload.source_split(*self._split_key(cell))
            self.splits[self._split_key(cell)] = self.executor.put(StoredImages.of(split))

    def workload_of(self, cell: Protocol) -> ShippedWorkload:
        keys: list[tuple[Domain, int | None]] = [(domain, cell.images) for domain in domains_of(cell)]
        domains = {key: self.domains[key] for key in keys}
        split = self.splits.get(self._split_key(cell)) if cell.source_split else None
        return ShippedWorkload(domains, self.models[self._classes(cell)], split, cell.source_split)

    def _add_domain(self, domain: Domain, images: int) -> Any:
        key = (domain, images)
        if key not in self.domains:
            frost = data.frost_folder(data.data_root(self.workload.names.root))
            here = domain.corruption == CLEAN or not self.workload.corrupts or (domain.corruption == "frost" and frost)
            if here:  # files that other nodes may not have
                self.domains[key] = self.executor.put(StoredImages.of(self.workload.domain(domain, images)))
            else:
                clean = self._add_domain(Domain(CLEAN, 0), images)
                self.submitted.append(self.executor.submit(_corrupt, clean, domain))
                self.domains[key] = self.submitted[-1].value
        return self.domains[key]

    def _classes(self, cell: Protocol) -> int:
        return self.workload.domain(domains_of(cell)[0], cell.images).num_classes

    @staticmethod
    def _split_key(cell: Protocol) -> tuple[int, int]:
        return cell.images, method_specs.source_images_asked(cell.method)


def _corrupt(clean: StoredImages, domain: Domain) -> StoredImages:
    """Corrupt all images of a dataset, on a node."""
    torch.set_num_threads(1)
    return StoredImages.of(data.corrupt_images(clean, *domain))


def _check_size(executor: RayExecutor, workload: ResolvedWorkload, cells: Sequence[Protocol]) -> None:
    store = executor.object_store_bytes()
    sizes: dict[tuple[int, int], int] = {}
    for cell in cells:
        domains = domains_of(cell)
        if (cell.images, len(domains)) not in sizes:
            image = workload.domain(domains[0], cell.images).pixels([0]).nbytes
            sizes[cell.images, len(domains)] = image * cell.images * len(domains)
    if max(sizes.values()) > store:
        raise TTCError(
            f"the images of one cell take {max(sizes.values()) / 1e9:.1f} GB and the object store of a node has "
            f"{store / 1e9:.1f} GB; start Ray with a larger --object-store-memory, or use --shared-files if every node "
            "has the data directory at the same path"
        )


def module_sources(names: Iterable[str]) -> dict[str, str]:
    """Return the source of the user's own modules, by name; parts of packages must be installed on the nodes.

    Args:
        names: Models and methods, of which some are ``module:function``.
    """
    found = {}
    for module in {name.partition(":")[0] for name in names if ":" in name} - {"timm", "torchvision"}:
        file = getattr(sys.modules.get(module), "__file__", None)
        if "." not in module and file and Path(file).suffix == ".py" and Path(file).stem == module:
            found[module] = Path(file).read_bytes().decode()
    return found
