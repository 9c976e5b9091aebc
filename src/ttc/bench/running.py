"""Runs: the cells of a grid that are not in the store yet, prepared, evaluated and recorded."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ttc.bench.environment import environment
from ttc.bench.evaluation import Result, evaluate
from ttc.bench.executors import Local
from ttc.bench.grid import checksum, places
from ttc.bench.protocol import Protocol
from ttc.bench.sources import source_logits
from ttc.bench.specs import Spec
from ttc.bench.store import Store
from ttc.bench.subjects import CLEAN, DATASETS, Subject
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


def run(cells: Sequence[Protocol], subject: Subject, store: Store, workers: int = 1) -> Generator[Event, None, None]:
    """Evaluate the cells, record each as it ends, and yield what happened; this process alone writes to the store.

    What cells share, corrupted images and SOURCE's answers, is made first, once each. A cell that fails is recorded
    with its error and the others go on.
    """
    if not cells:
        return
    workers = min(workers, len(cells))
    here = {**environment(), "workers": workers}
    with Local(workers, cells[0].threads) as executor:
        for _, outcome in executor.run([partial(_prepare, subject, *what) for what in preparations(cells, subject)]):
            if outcome.error is not None and outcome.ours:
                raise TTCError(outcome.error)
            yield Event(None)
        for place, outcome in executor.run([partial(perform, subject, cell) for cell in cells]):
            cell = cells[place]
            if outcome.error is None:
                store.finish(cell, outcome.value, here)
                yield Event(cell, accuracy=outcome.value.accuracy)
            else:
                store.fail(cell, outcome.error, here, outcome.seconds)
                yield Event(cell, error=outcome.error)


def perform(subject: Subject, protocol: Protocol) -> Result:
    """Evaluate one cell of a subject, from and to the subject's cache."""
    images = [_images(subject, place, protocol) for place in places_of(protocol)]
    checksum(protocol, images)
    network = subject.network(images[0].num_classes, protocol.dtype, protocol.device)
    return evaluate(protocol, images, network, subject.cache)


Preparation = tuple[tuple[str, int], Protocol, bool]


def preparations(cells: Sequence[Protocol], subject: Subject) -> list[Preparation]:
    """What several cells share: each domain to be corrupted here, and whether SOURCE answers it too."""
    found: dict[tuple[tuple[str, int], int], tuple[Protocol, bool]] = {}
    dataset = DATASETS.get(subject.dataset)
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


def _prepare(subject: Subject, place: tuple[str, int], protocol: Protocol, source: bool) -> None:
    images = _images(subject, place, protocol)
    if source:
        network = subject.network(images.num_classes, protocol.dtype, protocol.device)
        source_logits(protocol, images, network, subject.cache)


def places_of(protocol: Protocol) -> list[tuple[str, int]]:
    """The (corruption, severity) of each domain of a cell."""
    return places(Spec.read(protocol.scenario), protocol.corruptions, protocol.severity)


def _images(subject: Subject, place: tuple[str, int], protocol: Protocol) -> Images:
    cache: Path = subject.cache
    return subject.domain(*place, protocol.images, cache)
