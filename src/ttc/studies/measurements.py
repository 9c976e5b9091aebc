"""The cells of a study, read from the store, and the numbers computed from them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ttc.bench import method_specs
from ttc.bench.grid import Grid, cells
from ttc.bench.metrics import Interval, paired_interval
from ttc.bench.protocol import Protocol
from ttc.bench.scenarios import CLEAN
from ttc.bench.spec import Spec
from ttc.bench.store import Row
from ttc.studies import paper
from ttc.studies.profiles import Setup
from ttc.studies.study import ALL, Entry, Scale, Study


@dataclass(frozen=True)
class Plan:
    """A study on a set-up: its corruptions, and the cells behind each row and corruption."""

    study: Study
    setup: Setup
    corruptions: tuple[str, ...]
    cells: dict[tuple[str, str], tuple[Protocol, ...]]  # one per seed
    rejected: Mapping[str, str] = field(default_factory=dict)  # the rows that are not run, with the reason

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
    dtype: str = "float32",
    planned_on: str | None = None,
) -> Plan:
    """Return the cells that a study needs; ``images`` and ``corruptions`` replace the profile's."""
    found: dict[tuple[str, str], list[Protocol]] = {}
    every = [study.as_run(entry, setup.profile) for entry in study.entries]
    rejected = {entry.name: reason for entry in every if (reason := _reason_to_reject(entry))}
    every = [entry for entry in every if entry.name not in rejected]
    groups: dict[tuple[int, str, int, Scale], list[Entry]] = {}
    for entry in every:
        groups.setdefault((*_axes(entry), study.scale_of(entry, setup.profile)), []).append(entry)
    for (size, scenario, severity, scale), entries in groups.items():
        grid = Grid(
            methods=tuple(Spec.read(entry.method) for entry in entries),
            corruptions=(corruptions or scale.corruptions) if severity else (CLEAN,),
            severities=(severity or 5,),
            images=images or scale.images,
            batch_sizes=(size,),
            seeds=seeds,
            scenarios=(Spec.read(scenario),),
            device=setup.device,
            threads=threads,
            dtype=dtype,
        )
        made = cells(grid, setup.resolved, planned_on)
        for entry in entries:
            method = _identity(entry)
            for cell in made:
                if (cell.method, cell.options) == method:
                    found.setdefault((entry.name, cell.corruptions[0]), []).append(cell)
    names = tuple(dict.fromkeys(corruption for _, corruption in found))
    return Plan(study, setup, names, {key: tuple(group) for key, group in found.items()}, rejected)


def _axes(entry: Entry) -> tuple[int, str, int]:
    return entry.batch_size, entry.scenario, entry.severity


def _reason_to_reject(entry: Entry) -> str:
    smallest = method_specs.smallest_batch(Spec.read(entry.method).name)
    return f"accepts batches of {smallest} images or more" if entry.batch_size < smallest else ""


def _identity(entry: Entry) -> tuple[str, str]:
    spec = method_specs.with_defaults(Spec.read(entry.method))
    return spec.name, method_specs.options_json(spec)


class Measurements:
    """The numbers of the finished cells of a plan, in percent."""

    def __init__(self, plan: Plan, rows: Sequence[Row]) -> None:
        self.plan, self.study, self.setup = plan, plan.study, plan.setup
        self.finished = {row.protocol.hash: row for row in rows if row.status == "finished"}
        self.errors = {row.protocol.hash: row.error or "" for row in rows if row.status != "finished"}

    @property
    def classes(self) -> int:
        """The number of classes, 0 while no cell is finished."""
        return next((len(row.figures.get("per_class", ())) for row in self.finished.values()), 0)

    def rows(self, entry: str, corruption: str | None = None) -> list[Row]:
        """Return the rows behind a number, of all corruptions if none is named; empty while one is missing."""
        places = [corruption] if corruption else list(self.plan.corruptions)
        hashes = [cell.hash for place in places for cell in self.plan.cells.get((entry, place), ())]
        if not hashes or any(found not in self.finished for found in hashes):
            return []
        return [self.finished[found] for found in hashes]

    def reason(self, entry: str) -> str:
        """Return why a row has no number: its method rejects the setting, or a cell failed; empty if it has one."""
        hashes = [cell.hash for (name, _), group in self.plan.cells.items() if name == entry for cell in group]
        errors = [self.errors[found] for found in hashes if found in self.errors]
        return self.plan.rejected.get(entry) or (errors[0] if errors else "")

    def fractions(self, entry: str, corruption: str | None = None) -> NDArray[np.float64]:
        """Return how often each image was right, over corruptions and seeds: (N,), empty where a cell is missing."""
        rows = self.rows(entry, corruption)
        if not rows:
            return np.zeros(0)
        return np.asarray(np.mean([_by_image(row) for row in rows], axis=0), dtype=np.float64)

    def accuracy(self, entry: str, corruption: str | None = None) -> float | None:
        """Return the accuracy of a row on a corruption, or its average over all of them."""
        fractions = self.fractions(entry, corruption)
        return 100 * float(fractions.mean()) if len(fractions) else None

    def error(self, entry: str, corruption: str | None = None) -> float | None:
        """Return the standard error over images: an image seen under many corruptions counts once."""
        fractions = self.fractions(entry, corruption)
        return 100 * float(fractions.std()) / math.sqrt(len(fractions)) if len(fractions) else None

    def gain(self, better: str, worse: str, corruption: str | None = None) -> Interval | None:
        """Return the difference of two rows in points, of their averages or on one corruption, with its interval."""
        first, second = self.fractions(worse, corruption), self.fractions(better, corruption)
        if not len(first) or len(first) != len(second):
            return None
        return Interval(*(100 * value for value in paired_interval(first, second)))

    def cost(self, entry: str) -> float | None:
        """Return the milliseconds per image, at the batch size of the entry."""
        rows = self.rows(entry)
        return float(np.median([row.cost["median_ms"] / row.protocol.batch_size for row in rows])) if rows else None


def _by_image(row: Row) -> NDArray[np.float64]:
    """How often each image of a cell was right: once per domain in a sequence, so that an image counts once."""
    correct, images = row.correct, row.protocol.images
    whole = len(correct) > images and len(correct) % images == 0
    return np.asarray(correct.reshape(-1, images).mean(0) if whole else correct, dtype=np.float64)


def published(measured: Measurements, entry: Entry, corruption: str | None = None) -> float | None:
    """Return the paper's number for one of ours, None where it has none for the same corruptions.

    A mean over some corruptions is only compared with the paper's mean over the same ones.
    """
    table = measured.study.table
    if not table or not entry.paper:
        return None
    if corruption is not None:
        return paper.value(table, entry.paper, corruption)
    if set(measured.plan.corruptions) == set(ALL):
        whole = paper.value(table, entry.paper, measured.setup.column)
        if whole is not None:
            return whole
    return paper.average(table, entry.paper, measured.plan.corruptions)
