"""Grids: what a user crosses with what, and the cells that come of it."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch

import ttc
from ttc.bench import method_specs, scenarios
from ttc.bench.protocol import Protocol
from ttc.bench.scenarios import SCENARIOS
from ttc.bench.spec import Spec, nearest
from ttc.bench.workload import CLEAN, Workload
from ttc.core import Classifier
from ttc.corruptions import CORRUPTIONS, EXTRA_CORRUPTIONS, GROUPS, SEVERITIES
from ttc.data import Images
from ttc.errors import TTCError

PAPER = ("source", "norm", "t3a", "tent", "eta", "tipi", "ttc")
DTYPES = ("float32", "float64", "bfloat16")


@dataclass(frozen=True)
class Grid:
    """Methods × corruptions × severities × batch sizes × seeds × scenarios; the defaults are the paper's table.

    ``images`` is the number of each domain, None for all. Corruptions may be groups (``noise``, ``blur``, ``weather``,
    ``digital``, ``extra``, ``all`` for the fifteen) and ``clean``.
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


def cells(grid: Grid, workload: Workload) -> list[Protocol]:
    """The protocols of a grid, each once; every name, number and file is checked before anything runs."""
    _check(grid)
    names = _corruptions(grid.corruptions)
    methods = list(dict.fromkeys(adapters.complete(method) for method in grid.methods))
    chosen = list(dict.fromkeys(scenarios.complete(scenario) for scenario in grid.scenarios))
    axes = product(grid.seeds, chosen, grid.batch_sizes, grid.severities)
    optimizers: dict[Spec, str] = {}
    found: dict[str, Protocol] = {}
    for seed, scenario, batch_size, severity in axes:
        for group, level in _groups(scenario, names, severity):
            domains = [workload.domain(*place, grid.images) for place in places(scenario, group, level)]
            classes = domains[0].num_classes
            if not found:
                _check_head(workload, classes, grid)
            for method in methods:
                if method not in optimizers:
                    optimizers[method] = _optimizer(method, workload, classes, grid)
                protocol = Protocol(
                    dataset=workload.dataset_name,
                    data_checksum=_joined(domains),
                    model=workload.model,
                    model_checksum=workload.network_checksum(classes),
                    method=method.name,
                    options=adapters.options_text(method),
                    corruptions=group,
                    severity=level,
                    images=len(domains[0]),
                    seed=seed,
                    batch_size=batch_size,
                    scenario=str(scenario),
                    optimizer=optimizers[method],
                    dtype=grid.dtype,
                    device=grid.device,
                    threads=grid.threads,
                    version=ttc.__version__,
                )
                found[protocol.hash] = protocol
    if not found:
        raise TTCError("the grid has no cells: give at least one method, corruption, severity, batch size and seed")
    return list(found.values())


def places(scenario: Spec, corruptions: tuple[str, ...], severity: int) -> list[tuple[str, int]]:
    """The (corruption, severity) of each domain of a cell, in the order in which they are met."""
    levels = SCENARIOS[scenario.name].severities(severity)
    return [(name, level) for name in corruptions for level in ((0,) if name == CLEAN else levels)]


def checksum(protocol: Protocol, domains: list[Images]) -> None:
    """Refuse data that is not what the protocol was made for."""
    if _joined(domains) != protocol.data_checksum:
        raise TTCError(f"the images of {protocol.domain} changed while the grid ran; run the same command again")


def _groups(scenario: Spec, names: tuple[str, ...], severity: int) -> Iterator[tuple[tuple[str, ...], int]]:
    """All corruptions in one cell for a sequence, else a cell each; clean images have severity 0."""
    if SCENARIOS[scenario.name].sequence:
        if names:
            yield names, 0 if set(names) == {CLEAN} else severity
    else:
        yield from (((name,), 0 if name == CLEAN else severity) for name in names)


def _corruptions(names: tuple[str, ...]) -> tuple[str, ...]:
    found: list[str] = []
    groups = {**GROUPS, "all": CORRUPTIONS}
    known = (*CORRUPTIONS, *EXTRA_CORRUPTIONS, CLEAN)
    for name in names:
        if name not in known and name not in groups:
            near = nearest(name, [*known, *groups])
            raise TTCError(f"there is no corruption '{name}'{near}; choose {', '.join([*known, *groups])}")
        found += groups.get(name, (name,))
    return tuple(dict.fromkeys(found))


def _check(grid: Grid) -> None:
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
        raise TTCError(f"dtype must be one of {', '.join(DTYPES)}, got '{grid.dtype}'{nearest(grid.dtype, DTYPES)}")
    try:
        torch.device(grid.device)
    except RuntimeError as error:
        raise TTCError(f"there is no device '{grid.device}'; choose cpu, cuda or cuda:0") from error


def _check_head(workload: Workload, num_classes: int, grid: Grid) -> None:
    """Refuse a model that cannot be adapted at all, or tells too few classes apart."""
    found = Classifier(workload.network(num_classes, grid.dtype, grid.device)).num_classes
    if found < num_classes:
        raise TTCError(
            f"the model '{workload.model}' tells {found} classes apart and {workload.dataset_name} has {num_classes}; "
            "choose a --model that was trained for this data"
        )


def _optimizer(method: Spec, workload: Workload, num_classes: int, grid: Grid) -> str:
    """What the method builds for this model. A wrong value of an option is refused here; a method that cannot be built
    even as it comes fails in its cells, and the others go on.
    """
    try:
        network = workload.network(num_classes, grid.dtype, grid.device)
        return adapters.optimizer_of(adapters.build(network, method.name, adapters.options_text(method)))
    except Exception as error:
        if isinstance(error, TTCError) and method != adapters.complete(Spec(method.name)):
            raise
        return "none"


def _joined(domains: list[Images]) -> str:
    if len(domains) == 1:
        return domains[0].checksum
    return hashlib.sha256(" ".join(domain.checksum for domain in domains).encode()).hexdigest()
