"""Rows side by side: a name for each method, means over corruptions and seeds, paired tests between two methods."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ttc.bench.method_specs import brief
from ttc.bench.spec import Spec, nearest
from ttc.bench.metrics import Interval, McNemar, MeanStd, mcnemar, mean_std, paired_interval
from ttc.bench.store import Row
from ttc.errors import TTCError


@dataclass(frozen=True)
class Summary:
    """A method in one setting: the mean over corruptions, then mean and deviation over seeds."""

    method: str
    setting: Mapping[str, object]
    corruptions: int
    seeds: int
    accuracy: MeanStd
    error: MeanStd
    nll: MeanStd
    ece: MeanStd
    ms_per_batch: float
    forwards: float
    backwards: float


@dataclass(frozen=True)
class Comparison:
    """Two methods on the same images of one cell; ``difference`` is the second minus the first, in accuracy."""

    domain: str
    seed: int
    images: int
    first: float
    second: float
    difference: Interval
    test: McNemar


def method_names(rows: Sequence[Row]) -> dict[str, str]:
    """What to call the method of each row, by hash: its name, and the options that do not have their defaults."""
    return {
        row.protocol.hash: str(brief(Spec.of(row.protocol.method, json.loads(row.protocol.options)))) for row in rows
    }


def summaries(rows: Sequence[Row]) -> list[Summary]:
    """The finished rows, averaged over corruptions and then over seeds, one summary a method and setting."""
    finished = [row for row in rows if row.status == "finished"]
    names = method_names(finished)
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in finished:
        groups[names[row.protocol.hash], json.dumps(_setting(row))].append(row)
    return [_summary(method, group) for (method, _), group in groups.items()]


def comparisons(rows: Sequence[Row], first: str, second: str) -> tuple[list[Comparison], Interval]:
    """Two methods on every cell that both finished, and the mean difference over all cells.

    The last interval resamples images, not cells: an image shown under several corruptions counts as one.
    """
    finished = [row for row in rows if row.status == "finished"]
    names = method_names(finished)
    one, other = _of(first, finished, names), _of(second, finished, names)
    pairs = [(one[key], other[key]) for key in one if key in other]
    if not pairs:
        raise TTCError(f"no cell was finished by both '{first}' and '{second}' in the same setting; run them both")
    found = [
        Comparison(
            domain=_place(left),
            seed=left.protocol.seed,
            images=len(left.correct),
            first=float(left.correct.mean()),
            second=float(right.correct.mean()),
            difference=paired_interval(left.correct, right.correct),
            test=mcnemar(left.correct, right.correct),
        )
        for left, right in pairs
    ]
    sizes = {len(left.correct) for left, _ in pairs}
    if len(sizes) > 1:
        raise TTCError(f"cells of {sorted(sizes)} images cannot be averaged image by image; filter with --images")
    means = [np.mean([pair[side].correct for pair in pairs], axis=0) for side in (0, 1)]
    return found, paired_interval(means[0], means[1])


def _of(wanted: str, rows: Sequence[Row], names: Mapping[str, str]) -> dict[str, Row]:
    """The rows of a method by their setting, seed and domain."""
    spec = str(brief(Spec.read(wanted)))
    chosen = [row for row in rows if names[row.protocol.hash] == spec]
    if not chosen:
        known = sorted(set(names.values()))
        raise TTCError(f"no finished cell of '{wanted}'{nearest(wanted, known)}; the store has: {', '.join(known)}")
    found: dict[str, Row] = {}
    for row in chosen:
        key = json.dumps([_setting(row), row.protocol.seed, row.protocol.corruptions, row.protocol.data_checksum])
        found[key] = row
    return found


def _setting(row: Row) -> dict[str, object]:
    cell = row.protocol
    names = ("dataset", "model", "model_checksum", "severity", "images", "batch_size", "scenario", "dtype", "version")
    return {name: getattr(cell, name) for name in names}


def _place(row: Row) -> str:
    return f"{row.protocol.domain}, {row.protocol.scenario}, batch {row.protocol.batch_size}"


def _summary(method: str, rows: Sequence[Row]) -> Summary:
    by_seed: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_seed[row.protocol.seed].append(row)

    def over_seeds(figure: str) -> MeanStd:
        return mean_std([float(np.mean([row.figures[figure] for row in seed])) for seed in by_seed.values()])

    accuracy = over_seeds("accuracy")
    return Summary(
        method=method,
        setting=_setting(rows[0]),
        corruptions=len({row.protocol.corruptions for row in rows}),
        seeds=len(by_seed),
        accuracy=accuracy,
        error=MeanStd(1 - accuracy.mean, accuracy.std, accuracy.runs),
        nll=over_seeds("nll"),
        ece=over_seeds("ece"),
        ms_per_batch=float(np.median([row.cost["median_ms"] for row in rows])),
        forwards=float(np.mean([row.cost["forwards"] for row in rows])),
        backwards=float(np.mean([row.cost["backwards"] for row in rows])),
    )
