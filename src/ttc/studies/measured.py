"""The cells of a study, found in the store, and the numbers they give."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ttc.bench import method_specs
from ttc.bench.grid import Grid, cells
from ttc.bench.metrics import Interval, paired_interval
from ttc.bench.protocol import Protocol
from ttc.bench.spec import Spec
from ttc.bench.store import Row
from ttc.studies import paper
from ttc.studies.profiles import Setup
from ttc.studies.study import Entry, Study


@dataclass(frozen=True)
class Plan:
    """A study on a set-up: its corruptions, and the cells behind each row and corruption."""

    study: Study
    setup: Setup
    corruptions: tuple[str, ...]
    cells: dict[tuple[str, str], tuple[Protocol, ...]]  # one a seed

    @property
    def protocols(self) -> list[Protocol]:
        """Every cell once."""
        return list({cell.hash: cell for group in self.cells.values() for cell in group}.values())


def plan(
    study: Study,
    setup: Setup,
    *,
    images: int | None = None,
    corruptions: tuple[str, ...] = (),
    seeds: tuple[int, ...] = (0,),
    threads: int = 1,
) -> Plan:
    """The cells that a study needs; ``images`` and ``corruptions`` take the place of the profile's."""
    scale = study.scale[setup.profile]
    found: dict[tuple[str, str], list[Protocol]] = {}
    for size in dict.fromkeys(entry.batch_size for entry in study.entries):
        entries = [entry for entry in study.entries if entry.batch_size == size]
        grid = Grid(
            methods=tuple(Spec.read(entry.method) for entry in entries),
            corruptions=corruptions or scale.corruptions,
            images=images or scale.images,
            batch_sizes=(size,),
            seeds=seeds,
            device=setup.device,
            threads=threads,
        )
        made = cells(grid, setup.resolved)
        for entry in entries:
            method = _identity(entry)
            for cell in made:
                if (cell.method, cell.options) == method:
                    found.setdefault((entry.name, cell.corruptions[0]), []).append(cell)
    names = tuple(dict.fromkeys(corruption for _, corruption in found))
    return Plan(study, setup, names, {key: tuple(group) for key, group in found.items()})


def _identity(entry: Entry) -> tuple[str, str]:
    spec = method_specs.with_defaults(Spec.read(entry.method))
    return spec.name, method_specs.options_json(spec)


class Measured:
    """What the finished cells of a plan say, in percent."""

    def __init__(self, plan: Plan, rows: Sequence[Row]) -> None:
        self.plan, self.study, self.setup = plan, plan.study, plan.setup
        self.finished = {row.protocol.hash: row for row in rows if row.status == "finished"}

    def rows(self, entry: str, corruption: str | None = None) -> list[Row]:
        """The rows behind a number; of all corruptions if none is named, and none at all while one is missing."""
        places = [corruption] if corruption else list(self.plan.corruptions)
        hashes = [cell.hash for place in places for cell in self.plan.cells.get((entry, place), ())]
        if not hashes or any(found not in self.finished for found in hashes):
            return []
        return [self.finished[found] for found in hashes]

    def shares(self, entry: str, corruption: str | None = None) -> NDArray[np.float64]:
        """How often each image was right, over corruptions and seeds: (N,), empty where a cell is missing."""
        rows = self.rows(entry, corruption)
        if not rows:
            return np.zeros(0)
        return np.asarray(np.mean([row.correct for row in rows], axis=0), dtype=np.float64)

    def accuracy(self, entry: str, corruption: str | None = None) -> float | None:
        """The accuracy of a row on a corruption, or its average over all of them."""
        shares = self.shares(entry, corruption)
        return 100 * float(shares.mean()) if len(shares) else None

    def error(self, entry: str, corruption: str | None = None) -> float | None:
        """The standard error over images: an image seen under many corruptions counts once."""
        shares = self.shares(entry, corruption)
        return 100 * float(shares.std()) / math.sqrt(len(shares)) if len(shares) else None

    def gain(self, better: str, worse: str) -> Interval | None:
        """The difference of two rows' averages in points, with its 95 % interval."""
        first, second = self.shares(worse), self.shares(better)
        if not len(first) or len(first) != len(second):
            return None
        return Interval(*(100 * value for value in paired_interval(first, second)))

    def cost(self, entry: str) -> float | None:
        """Milliseconds an image, at the batch size of the entry."""
        rows = self.rows(entry)
        return float(np.median([row.cost["median_ms"] / row.protocol.batch_size for row in rows])) if rows else None


def published(measured: Measured, entry: Entry, corruption: str | None = None) -> float | None:
    """The paper's number beside one of ours: on a corruption, or the average, over the same corruptions if "
    "it has them."""
    table = measured.study.table
    if not table or not entry.paper:
        return None
    if corruption is not None:
        return paper.value(table, entry.paper, corruption)
    whole = paper.value(table, entry.paper, measured.setup.column)
    return whole if whole is not None else paper.average(table, entry.paper, measured.plan.corruptions)
