"""Grids: what a user crosses with what, and the cells of the product."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import torch

import ttc
from ttc.bench import method_specs, scenarios
from ttc.bench.precision import DTYPES
from ttc.bench.protocol import Protocol
from ttc.bench.scenarios import CLEAN, SCENARIOS, Domain
from ttc.bench.source_split import SourceSplit
from ttc.bench.spec import Spec
from ttc.bench.workload import ResolvedWorkload
from ttc.core import Classifier
from ttc.corruptions import CORRUPTIONS, EXTRA_CORRUPTIONS, GROUPS, SEVERITIES
from ttc.data import Images, as_tensor
from ttc.data.corrupted_images import CorruptedImages
from ttc.errors import TTCError, unknown

PAPER = ("source", "norm", "t3a", "tent", "eta", "tipi", "ttc")


@dataclass(frozen=True)
class Grid:
    """Methods × corruptions × severities × batch sizes × seeds × scenarios; the defaults are the paper's table.

    Args:
        methods: Methods of the table, or ``module:function``, with options.
        corruptions: Corruptions, groups of them (``noise``, ``blur``, ``weather``, ``digital``, ``extra``, ``all`` for
            the fifteen) and ``clean``.
        severities: 1 to 5.
        images: Images per domain, None for all.
        batch_sizes: Images per batch.
        seeds: Seeds of the order of the images.
        scenarios: Names of ``SCENARIOS``, with options.
        dtype: ``float32``, ``float64`` or ``bfloat16``: computed in bfloat16, stored in float32.
        device: Where the model runs.
        threads: Torch threads per cell.
    """

    methods: tuple[Spec, ...] = tuple(Spec(name) for name in PAPER)
    corruptions: tuple[str, ...] = CORRUPTIONS
    severities: tuple[int, ...] = (5,)
    images: int | None = None
    batch_sizes: tuple[int, ...] = (100,)
    seeds: tuple[int, ...] = (0,)
    scenarios: tuple[Spec, ...] = (Spec("per-domain"),)
    dtype: str = "float32"
    device: str = "cpu"
    threads: int = 1


def cells(grid: Grid, workload: ResolvedWorkload, planned_on: str | None = None) -> list[Protocol]:
    """Return the protocols of a grid, each once; every name, number and file is checked before anything runs.

    Args:
        grid: What to cross.
        workload: The data and the model.
        planned_on: The device on which models are checked; by default the grid's, which a driver of a cluster may lack.

    Raises:
        TTCError: If something does not exist or does not fit, or the grid is empty.
    """
    _validate(grid)
    device = planned_on or grid.device
    names = _expand_corruptions(grid.corruptions)
    methods = list(dict.fromkeys(method_specs.with_defaults(method) for method in grid.methods))
    checksums = {method: method_specs.method_checksum(method) for method in methods}
    chosen = list(dict.fromkeys(scenarios.with_defaults(scenario) for scenario in grid.scenarios))
    found: dict[str, Protocol] = {}
    for seed, scenario, asked_size, severity in product(grid.seeds, chosen, grid.batch_sizes, grid.severities):
        batch_size = SCENARIOS[scenario.name].batch_size or asked_size  # a protocol states the batches as they are
        for group, level in _groups(scenario, names, severity):
            domains = [workload.domain(one, grid.images) for one in scenarios.domains_of(scenario, group, level)]
            classes = domains[0].num_classes
            if not found:
                _check_head(workload, classes, grid.dtype, device)
            for method in methods:
                _check_batch_size(method, batch_size)
                split = _source_split(method, workload, len(domains[0]))
                protocol = Protocol(
                    dataset=workload.names.dataset_name,
                    data_checksum=data_checksum(domains),
                    model=workload.names.model,
                    model_checksum=workload.model_checksum(classes),
                    method=method.name,
                    options=method_specs.options_json(method),
                    corruptions=group,
                    severity=level,
                    images=len(domains[0]),
                    seed=seed,
                    batch_size=batch_size,
                    scenario=str(scenario),
                    optimizer=_optimizer(method, workload, (classes, grid.dtype, device), split),
                    dtype=grid.dtype,
                    device=grid.device,
                    threads=grid.threads,
                    version=ttc.__version__,
                    method_checksum=checksums[method],
                    source_split=split.label if split else "",
                    source_checksum=split.checksum if split else "",
                    textures=_textures(domains),
                )
                found[protocol.hash] = protocol
    if not found:
        raise TTCError("the grid has no cells: give at least one method, corruption, severity, batch size and seed")
    return list(found.values())


def domains_of(protocol: Protocol) -> list[Domain]:
    """Return the domains of a cell in the order of its stream."""
    return scenarios.domains_of(Spec.read(protocol.scenario), protocol.corruptions, protocol.severity)


def data_checksum(domains: Sequence[Images]) -> str:
    """Return the checksum of the domains of a cell."""
    if len(domains) == 1:
        return domains[0].checksum
    return hashlib.sha256(" ".join(domain.checksum for domain in domains).encode()).hexdigest()


def _textures(domains: Sequence[Images]) -> str:
    """The frost textures of the domains; empty where none of them is frost that was made here."""
    return next((one.textures for one in domains if isinstance(one, CorruptedImages) and one.textures), "")


def _groups(scenario: Spec, names: tuple[str, ...], severity: int) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the corruptions and the severity of each cell: all in one for a sequence, else one cell per corruption."""
    if SCENARIOS[scenario.name].sequence:
        if names:
            yield names, 0 if set(names) == {CLEAN} else severity
    else:
        yield from (((name,), 0 if name == CLEAN else severity) for name in names)


def _expand_corruptions(names: tuple[str, ...]) -> tuple[str, ...]:
    found: list[str] = []
    groups = {**GROUPS, "all": CORRUPTIONS}
    known = (*CORRUPTIONS, *EXTRA_CORRUPTIONS, CLEAN)
    for name in names:
        if name not in known and name not in groups:
            raise unknown("corruption", name, [*known, *groups])
        found += groups.get(name, (name,))
    return tuple(dict.fromkeys(found))


def _validate(grid: Grid) -> None:
    for name, numbers, least in (
        ("batch size", grid.batch_sizes, 1),
        ("seed", grid.seeds, 0),
        ("number of images", () if grid.images is None else (grid.images,), 1),
        ("number of threads", (grid.threads,), 1),
    ):
        for number in numbers:
            if number < least:
                raise TTCError(f"the {name} must be at least {least}, got {number}")
    for severity in grid.severities:
        if severity not in SEVERITIES:
            raise TTCError(f"the severity must be 1 to 5, got {severity}; for uncorrupted images add {CLEAN}")
    if grid.dtype not in DTYPES:
        raise unknown("dtype", grid.dtype, DTYPES)
    try:
        torch.device(grid.device)
    except RuntimeError as error:
        raise TTCError(f"there is no device '{grid.device}'; choose cpu, cuda or cuda:0") from error


def _check_head(workload: ResolvedWorkload, num_classes: int, dtype: str, device: str) -> None:
    """Reject a model that cannot be adapted at all, or has too few classes."""
    names = workload.names
    found = Classifier(workload.network(num_classes, dtype, device)).num_classes
    if found < num_classes:
        raise TTCError(
            f"the model '{names.model}' has {found} classes and {names.dataset_name} has {num_classes}; "
            "choose a --model that was trained for this data"
        )


def _check_batch_size(method: Spec, batch_size: int) -> None:
    smallest = method_specs.smallest_batch(method.name)
    if batch_size < smallest:
        raise TTCError(f"'{method.name}' accepts batches of {smallest} images or more, the batch size is {batch_size}")


def _source_split(method: Spec, workload: ResolvedWorkload, images: int) -> SourceSplit | None:
    asked = method_specs.source_images_asked(method.name)
    try:
        return workload.source_split(images, asked) if asked else None
    except TTCError as error:
        raise TTCError(f"'{method.name}' needs source images: {error}") from error


def _optimizer(method: Spec, workload: ResolvedWorkload, built: tuple[int, str, str], split: SourceSplit | None) -> str:
    """Describe the optimizer that a method builds for this model, built once.

    An invalid value of an option is rejected here; a method of the table that cannot be built even with its defaults
    fails in its own cells, and the others run.
    """
    key = (method, *built)
    if key not in workload.optimizers:
        network = workload.network(*built)
        try:
            few = None if split is None else as_tensor(split.pixels(range(min(2, len(split)))))
            adapter = method_specs.build_for_trial(network, method.name, method_specs.options_json(method), few)
            workload.optimizers[key] = method_specs.describe_optimizers(adapter)
        except Exception as error:
            given = method.is_address or method != method_specs.with_defaults(Spec(method.name))
            if isinstance(error, TTCError) and given:
                raise
            workload.optimizers[key] = "none"
    return workload.optimizers[key]
