"""Runs: the cells of a grid that are not in the store yet, prepared, evaluated and recorded."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ttc.bench import method_specs
from ttc.bench.environment import environment
from ttc.bench.evaluation import Result, evaluate
from ttc.bench.executors import LocalExecutor, TaskResult
from ttc.bench.grid import data_checksum, domains_of
from ttc.bench.protocol import Protocol
from ttc.bench.scenarios import CLEAN, Domain
from ttc.bench.source_cache import source_logits
from ttc.bench.spec import Spec
from ttc.bench.store import Store
from ttc.bench.workload import ResolvedWorkload
from ttc.errors import TTCError

if TYPE_CHECKING:
    from ttc.bench.ray_executor import RayExecutor
    from ttc.bench.shipped_workload import ShippedWorkload

    Executor = LocalExecutor | RayExecutor


@dataclass(frozen=True)
class RunEvent:
    """Something finished: a preparation (no protocol), or a cell with its accuracy or its error."""

    protocol: Protocol | None
    method: str = ""  # its label, such as ttc(bandwidth=2)
    accuracy: float | None = None
    error: str | None = None


@dataclass(frozen=True)
class Preparation:
    """What several cells need: a domain to corrupt, and whether SOURCE predicts it too."""

    domain: Domain
    protocol: Protocol  # one of the cells
    source: bool


def pending(cells: Sequence[Protocol], store: Store) -> list[Protocol]:
    """Return the cells that are not finished in the store; failed ones are tried again."""
    finished = store.finished()
    return [cell for cell in cells if cell.hash not in finished]


def run(
    cells: Sequence[Protocol],
    workload: ResolvedWorkload,
    store: Store,
    workers: int = 1,
    executor: "RayExecutor | None" = None,
) -> Generator[RunEvent, None, None]:
    """Evaluate cells, record each as it ends, and yield what happened; this process alone writes to the store.

    What cells share, corrupted images and SOURCE's predictions, is prepared first, once each. A cell that fails is
    recorded with its error, and the others run.

    Args:
        cells: The cells, from :func:`ttc.bench.grid.cells`.
        workload: The data and model they were planned for.
        store: Where results go.
        workers: The number of processes on this machine; 1 runs in this one.
        executor: A cluster to run on instead.

    Raises:
        TTCError: If a preparation fails for a reason the user can correct, or the cluster cannot be used.
    """
    if not cells:
        return
    workers = min(workers, len(cells))
    with executor or LocalExecutor(workers, cells[0].threads) as opened:
        here = {**environment(), "workers": min(opened.workers, len(cells))}
        workload_of = yield from _share(opened, workload, cells)
        for index, result in opened.run([partial(evaluate_cell, workload_of(cell), cell) for cell in cells]):
            cell = cells[index]
            label = method_specs.method_label(cell)
            where = {**here, **(result.environment or {})}
            if result.error is None:
                store.finish(cell, result.value, where, label)
                yield RunEvent(cell, label, accuracy=result.value.accuracy)
            else:
                store.fail(cell, result.error, where, result.seconds, label)
                yield RunEvent(cell, label, error=result.error)


def _share(
    executor: "Executor", workload: ResolvedWorkload, cells: Sequence[Protocol]
) -> Generator[RunEvent, None, Callable[[Protocol], Any]]:
    """Prepare what cells share, through files that all workers see or through the object store of a cluster."""
    if isinstance(executor, LocalExecutor) or executor.shared_files:
        tasks = [partial(_prepare, workload, one) for one in preparations(cells, workload)]
        for _, result in executor.run(tasks):
            yield _prepared(result)
        return lambda cell: workload
    from ttc.bench.shipped_workload import ship

    shipping = ship(executor, workload, cells)
    while True:
        try:
            yield _prepared(next(shipping))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def _prepared(result: TaskResult) -> RunEvent:
    if result.error is not None and result.expected:
        raise TTCError(result.error)
    return RunEvent(None)


def evaluate_cell(workload: "ResolvedWorkload | ShippedWorkload", protocol: Protocol) -> Result:
    """Evaluate one cell with the workload's cache.

    Raises:
        TTCError: If the data or a user's own builder is not what the protocol was made for.
    """
    images = [workload.domain(domain, protocol.images, cached=True) for domain in domains_of(protocol)]
    if data_checksum(images) != protocol.data_checksum:
        raise TTCError(f"the images of {protocol.domain} changed while the grid ran; run the same command again")
    if method_specs.method_checksum(Spec(protocol.method)) != protocol.method_checksum:
        raise TTCError(f"the source file of {protocol.method} changed while the grid ran; run the same command again")
    split = None
    if protocol.source_split:
        split = workload.source_split(protocol.images, method_specs.source_images_asked(protocol.method))
        if split.checksum != protocol.source_checksum:
            raise TTCError(f"the images of {split.label} changed while the grid ran; run the same command again")
    network = workload.network(images[0].num_classes, protocol.dtype, protocol.device)
    return evaluate(protocol, images, network, workload.cache, split)


def preparations(cells: Sequence[Protocol], workload: ResolvedWorkload) -> list[Preparation]:
    """Return what several cells share: each domain that is corrupted here or predicted by SOURCE, once."""
    found: dict[tuple[Domain, int], Preparation] = {}
    for cell in cells:
        for domain in domains_of(cell):
            key = (domain, cell.images)
            before = key in found and found[key].source
            found[key] = Preparation(domain, cell, before or cell.method == "source")
    return [one for one in found.values() if one.source or (workload.corrupts and one.domain.corruption != CLEAN)]


def _prepare(workload: ResolvedWorkload, preparation: Preparation) -> None:
    protocol = preparation.protocol
    images = workload.domain(preparation.domain, protocol.images, cached=True)
    if preparation.source:
        network = workload.network(images.num_classes, protocol.dtype, protocol.device)
        source_logits(protocol, images, network, workload.cache)
