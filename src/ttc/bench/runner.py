"""Runs: the cells of a grid that are not in the store yet, prepared, evaluated and recorded."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ttc.bench.environment import environment
from ttc.bench.evaluate import Result, evaluate
from ttc.bench.executors import Local
from ttc.bench.grid import checksum, places
from ttc.bench.protocol import Protocol
from ttc.bench.source_cache import source_logits
from ttc.bench.spec import Spec
from ttc.bench.store import Store
from ttc.bench.workload import CLEAN, DATASETS, Workload
from ttc.data import Images
from ttc.errors import TTCError


@dataclass(frozen=True)
class Event:
    """Something came to an end: a preparation (no protocol), or a cell with its accuracy or its error."""

    protocol: Protocol | None
    accuracy: float | None = None
    error: str | None = None


def pending(cells: Sequence[Protocol], store: Store) -> list[Protocol]:
    """The cells that are not finished in the store; failed ones are tried again."""
    finished = store.finished()
    return [cell for cell in cells if cell.hash not in finished]


def run(cells: Sequence[Protocol], workload: Workload, store: Store, workers: int = 1) -> Generator[Event, None, None]:
    """Evaluate the cells, record each as it ends, and yield what happened; this process alone writes to the store.

    What cells share, corrupted images and SOURCE's answers, is made first, once each. A cell that fails is recorded
    with its error and the others go on.
    """
    if not cells:
        return
    workers = min(workers, len(cells))
    here = {**environment(), "workers": workers}
    with Local(workers, cells[0].threads) as executor:
        for _, outcome in executor.run([partial(_prepare, workload, *what) for what in preparations(cells, workload)]):
            if outcome.error is not None and outcome.ours:
                raise TTCError(outcome.error)
            yield Event(None)
        for place, outcome in executor.run([partial(perform, workload, cell) for cell in cells]):
            cell = cells[place]
            if outcome.error is None:
                store.finish(cell, outcome.value, here)
                yield Event(cell, accuracy=outcome.value.accuracy)
            else:
                store.fail(cell, outcome.error, here, outcome.seconds)
                yield Event(cell, error=outcome.error)


def perform(workload: Workload, protocol: Protocol) -> Result:
    """Evaluate one cell of a workload, from and to the workload's cache."""
    images = [_images(workload, place, protocol) for place in places_of(protocol)]
    checksum(protocol, images)
    network = workload.network(images[0].num_classes, protocol.dtype, protocol.device)
    return evaluate(protocol, images, network, workload.cache)


Preparation = tuple[tuple[str, int], Protocol, bool]


def preparations(cells: Sequence[Protocol], workload: Workload) -> list[Preparation]:
    """What several cells share: each domain to be corrupted here, and whether SOURCE answers it too."""
    found: dict[tuple[tuple[str, int], int], tuple[Protocol, bool]] = {}
    dataset = DATASETS.get(workload.dataset)
    for cell in cells:
        for place in places_of(cell):
            key = (place, cell.images)
            asked = cell.method == "source"
            _, before = found.get(key, (cell, False))
            found[key] = (cell, asked or before)
    made_here = dataset is None or dataset.published is None
    return [
        (place, cell, source)
        for (place, _), (cell, source) in found.items()
        if source or (made_here and place[0] != CLEAN)
    ]


def _prepare(workload: Workload, place: tuple[str, int], protocol: Protocol, source: bool) -> None:
    images = _images(workload, place, protocol)
    if source:
        network = workload.network(images.num_classes, protocol.dtype, protocol.device)
        source_logits(protocol, images, network, workload.cache)


def places_of(protocol: Protocol) -> list[tuple[str, int]]:
    """The (corruption, severity) of each domain of a cell."""
    return places(Spec.read(protocol.scenario), protocol.corruptions, protocol.severity)


def _images(workload: Workload, place: tuple[str, int], protocol: Protocol) -> Images:
    cache: Path = workload.cache
    return workload.domain(*place, protocol.images, cache)
