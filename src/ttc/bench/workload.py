"""The workload: which images and which model, from the names a user gives."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from torch import nn

from ttc import data, models
from ttc.bench.precision import stored_type
from ttc.bench.scenarios import CLEAN, Domain
from ttc.bench.source_split import REST, TRAINING, SourceSplit, SplitName, other_images, remaining_images
from ttc.core.state import model_digest
from ttc.data import Images, subset
from ttc.data.named import is_sorted_by_class
from ttc.errors import TTCError, unknown


@dataclass(frozen=True)
class Workload:
    """The names of a dataset and a model, and where files are.

    Args:
        dataset: A key of ``DATASETS``; ``cifar10:PATH`` or ``cifar100:PATH``; or ``imagefolder:PATH`` with one folder
            per class, whose images are fitted to the model, or to ``imagefolder:PATH@224`` pixels.
        model: ``embedded`` or a name that :func:`ttc.models.build` knows.
        checkpoint: The weights of a model of the zoo: a path from the data directory, or from the current one.
        root: The data directory; else ``TTC_DATA``, else the platform's cache directory.
        statistics: A key of ``ttc.models.INPUT_STATISTICS``, in place of those of a zoo model.
        source_split: Where methods that need source images get them from: ``clean`` or ``clean:N`` for clean images of
            the dataset that are not in the evaluated stream, else a dataset, also ``cifar10-train`` or
            ``cifar100-train``, with ``:N`` for the number of images.
        frost_dir: A folder with frost textures, or ``procedural``; by default the textures that
            ``ttc data fetch frost`` put into the data directory, else procedural ones.
    """

    dataset: str = "embedded"
    model: str = "embedded"
    checkpoint: Path | None = None
    root: Path | None = None
    statistics: str | None = None
    source_split: str = REST
    frost_dir: Path | None = None

    @property
    def cache(self) -> Path:
        """The directory of corrupted images and source predictions."""
        return data.data_root(self.root) / "cache"

    @property
    def dataset_name(self) -> str:
        """The dataset without its directory, so that a protocol is the same on every machine."""
        kind, _, path = self.dataset.partition(":")
        return f"{kind}:{Path(path).name}" if path else kind

    def resolve(self) -> "ResolvedWorkload":
        """Find the data and the model; each is loaded at its first use, and once.

        Raises:
            TTCError: If there is no dataset or source split of that name, or a frost folder lacks a file.
        """
        kind, _, path = self.dataset.partition(":")
        dataset = f"{kind}:{Path(path).absolute()}" if path else kind
        split = SplitName.read(self.source_split)
        if split.dataset not in {REST, *TRAINING}:
            _find_dataset(split.dataset)
        kind, _, path = self.source_split.partition(":")
        source = f"{kind}:{Path(path).absolute()}" if kind == "imagefolder" and path else self.source_split
        root, checkpoint = data.data_root(self.root), self.checkpoint
        if checkpoint is not None:
            checkpoint = root / checkpoint if (root / checkpoint).exists() else checkpoint.absolute()
        frost = None if self.frost_dir is None else data.choose_frost(self.frost_dir, root) or Path(data.PROCEDURAL)
        return ResolvedWorkload(
            replace(self, dataset=dataset, checkpoint=checkpoint, root=root, source_split=source, frost_dir=frost)
        )


class ResolvedWorkload:
    """The images and the model of a workload, loaded once each and passed to whatever needs them.

    It is pickled as its names: a worker process loads them once for itself.

    Args:
        names: The workload, with absolute paths.
    """

    def __init__(self, names: Workload) -> None:
        self.names = names
        self.optimizers: dict[object, str] = {}  # what each method built for this model; filled by ttc.bench.grid
        self._dataset = _find_dataset(names.dataset)
        self._clean: Images | None = None
        self._domains: dict[tuple[Domain, int | None, bool], Images] = {}
        self._splits: dict[tuple[int, int], SourceSplit] = {}
        self._networks: dict[tuple[int, str, str], nn.Module] = {}
        self._digests: dict[int, str] = {}

    def __reduce__(self) -> "tuple[Callable[[Workload], ResolvedWorkload], tuple[Workload]]":
        return _resolve_once, (self.names,)

    @property
    def cache(self) -> Path:
        """The directory of corrupted images and source predictions."""
        return self.names.cache

    @property
    def corrupts(self) -> bool:
        """Whether images are corrupted here, rather than read from published files."""
        return self._dataset.published is None

    def domain(self, domain: Domain, images: int | None, *, cached: bool = False) -> Images:
        """Return the images of a domain.

        Args:
            domain: The corruption and its severity.
            images: How many of them, None for all.
            cached: Corrupt all of them now, once, and read them from the cache; else each when it is needed.

        Raises:
            TTCError: If the data is missing, or has fewer images.
        """
        key = (domain, images, cached)
        if key not in self._domains:
            self._domains[key] = self._load(domain, images, cached)
        return self._domains[key]

    def source_split(self, images: int, asked: int) -> SourceSplit:
        """Return the source split for a stream.

        Args:
            images: How many images of the dataset each domain of the stream has.
            asked: How many source images the method asks for.

        Raises:
            TTCError: If there are not enough images that are not in the stream.
        """
        if (images, asked) not in self._splits:
            clean, by_class, root = self._clean_images(), self._dataset.by_class, data.data_root(self.names.root)
            name = SplitName.read(self.names.source_split)
            if name.dataset == REST:
                found = remaining_images(clean, images, by_class, name, asked)
            else:
                read = TRAINING.get(name.dataset)
                source = read(root) if read else self._open(name.dataset)
                found = other_images(source, _take(clean, images, by_class), name, asked)
            self._splits[images, asked] = found
        return self._splits[images, asked]

    def network(self, num_classes: int, dtype: str = "float32", device: str = "cpu") -> nn.Module:
        """Return the source model; adapters copy it.

        Args:
            num_classes: The number of classes of the data.
            dtype: One of :data:`ttc.bench.precision.DTYPES`.
            device: Where to put it.

        Raises:
            TTCError: If the model cannot be built, or the device cannot be used.
        """
        key = (num_classes, dtype, device)
        if key not in self._networks:
            self._networks[key] = _build(self.names, num_classes, dtype, device)
        return self._networks[key]

    def model_checksum(self, num_classes: int) -> str:
        """Return the SHA-256 of the source model's parameters and buffers."""
        if num_classes not in self._digests:
            self._digests[num_classes] = model_digest(self.network(num_classes))
        return self._digests[num_classes]

    def _load(self, domain: Domain, images: int | None, cached: bool) -> Images:
        dataset, root = self._dataset, data.data_root(self.names.root)
        if domain.corruption != CLEAN and dataset.published is not None:
            return _take(dataset.published(root, *domain), images, dataset.by_class)
        clean = _take(self._clean_images(), images, dataset.by_class)
        if domain.corruption == CLEAN:
            return clean
        cache = self.cache if cached else None
        return data.corrupt_images(clean, *domain, cache=cache, frost_dir=data.choose_frost(self.names.frost_dir, root))

    def _clean_images(self) -> Images:
        if self._clean is None:
            self._clean = self._open(self.names.dataset)
        return self._clean

    def _open(self, dataset: str) -> Images:
        """Open the clean images of a dataset; those of a folder are fitted to the model."""
        known, root = _find_dataset(dataset), data.data_root(self.names.root)
        if known.clean is not None:
            return known.clean(root)
        return models.open_fitted(_build(self.names, None, "float32", "cpu"), dataset, root)[0]


@dataclass(frozen=True)
class _Dataset:
    clean: Callable[[Path], Images] | None  # None: opened by name, fitted to the model
    published: Callable[[Path, str, int], Images] | None = None  # None: corrupted here
    by_class: bool = False  # sorted by class: a subset of it is spread over the whole


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


def _find_dataset(name: str) -> _Dataset:
    kind, _, place = name.partition(":")
    if place and kind in {"imagefolder", "cifar10", "cifar100"}:
        return _Dataset(None, by_class=is_sorted_by_class(name))
    if name not in DATASETS:
        raise unknown("dataset", name, [*DATASETS, "cifar10:PATH", "cifar100:PATH", "imagefolder:PATH"])
    return DATASETS[name]


def _take(images: Images, count: int | None, by_class: bool) -> Images:
    return images if count is None else subset(images, count, by_class)


def _build(names: Workload, num_classes: int | None, dtype: str, device: str) -> nn.Module:
    if names.checkpoint is None and names.model in models.MODELS:
        raise TTCError(f"the model '{names.model}' comes without weights; give them with --checkpoint FILE")
    classes = None if names.model == "embedded" else num_classes  # its ten, of which the data may have fewer
    network = models.build(names.model, classes, names.checkpoint, names.statistics)
    try:
        return network.to(device, stored_type(dtype)).eval()
    except (RuntimeError, AssertionError) as error:
        raise TTCError(f"the device '{device}' cannot be used: {str(error).splitlines()[0]}") from error


@lru_cache(maxsize=1)
def _resolve_once(names: Workload) -> ResolvedWorkload:
    """What a worker process unpickles: one object for all of its tasks."""
    return ResolvedWorkload(names)
