"""Rows side by side: a label for each method, means over corruptions and seeds, paired tests between two methods."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from ttc.bench.metrics import Interval, McNemar, MeanStd, mcnemar, mean_std, paired_interval
from ttc.bench.spec import Spec
from ttc.bench.store import Row
from ttc.errors import TTCError, unknown


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
    """The accuracies of two methods on the same images of one cell; ``difference`` is the second minus the first."""

    domain: str
    seed: int
    images: int
    first: float
    second: float
    difference: Interval
    test: McNemar


def method_names(rows: Sequence[Row]) -> dict[str, str]:
    """Return what to call the method of each row, by hash: its name with the options that are not its defaults.

    Rows of ttc 0.1 have no label; they are told apart by the options in which the rows of a method differ.
    """
    unlabelled: dict[str, dict[str, dict[str, object]]] = defaultdict(dict)
    for row in rows:
        if row.label is None:
            unlabelled[row.protocol.method][row.protocol.hash] = json.loads(row.protocol.options)
    names = {row.protocol.hash: row.label for row in rows if row.label is not None}
    for method, options in unlabelled.items():
        for key, given in options.items():
            differing = {name: value for name, value in given.items() if _differs(name, value, options.values())}
            names[key] = str(Spec.of(method, differing))
    return {row.protocol.hash: names[row.protocol.hash] for row in rows}


def _differs(name: str, value: object, others: Iterable[Mapping[str, object]]) -> bool:
    return any(repr(other.get(name)) != repr(value) for other in others)


def summaries(rows: Sequence[Row]) -> list[Summary]:
    """Average the finished rows over corruptions and then over seeds, one summary per method and setting."""
    finished = [row for row in rows if row.status == "finished"]
    names = method_names(finished)
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in finished:
        groups[names[row.protocol.hash], json.dumps(_setting(row))].append(row)
    return [
        _summary(method, part, textures)
        for (method, _), group in groups.items()
        for textures, part in by_textures(group).items()
    ]


def by_textures(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Split rows of one setting by the frost textures they used; cells without frost are part of each list.

    Args:
        rows: The rows.

    Returns:
        The rows by ``original frost``, ``procedural frost`` …; by the empty string if none has frost.
    """
    kinds = dict.fromkeys(row.protocol.textures for row in rows if row.protocol.textures)
    return {kind: [row for row in rows if row.protocol.textures in ("", kind)] for kind in kinds or {"": None}}


def comparisons(rows: Sequence[Row], first: str, second: str) -> tuple[list[Comparison], Interval]:
    """Compare two methods on every cell that both finished.

    Args:
        rows: The rows of a store.
        first: A method as :func:`method_names` calls it, or with other options spelled out.
        second: The other method.

    Returns:
        The comparison per cell, and the mean difference over all cells. Its interval resamples images, not cells: an
        image seen under several corruptions counts as one.

    Raises:
        TTCError: If there is no such method, or no cell that both finished.
    """
    finished = [row for row in rows if row.status == "finished"]
    names = method_names(finished)
    one, other = _rows_of(first, finished, names), _rows_of(second, finished, names)
    pairs = [(one[key], other[key]) for key in one if key in other]
    if not pairs:
        differing = _nearest_difference(one.values(), other.values())
        raise TTCError(
            f"no cell was finished by both '{first}' and '{second}' in the same setting, the nearest differ in "
            f"{differing}; run them both"
        )
    found = [
        Comparison(
            domain=_describe(left),
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


def _rows_of(wanted: str, rows: Sequence[Row], names: Mapping[str, str]) -> dict[str, Row]:
    """The rows of a method by their setting, seed and domain."""
    label = _canonical(wanted, set(names.values()))
    chosen = [row for row in rows if names[row.protocol.hash] == label]
    return {json.dumps(_pairing(row)): row for row in chosen}


def _pairing(row: Row) -> dict[str, object]:
    """What two cells must have in common to be compared image by image."""
    cell = row.protocol
    return {**_setting(row), "seed": cell.seed, "corruptions": cell.corruptions, "data_checksum": cell.data_checksum}


def _nearest_difference(one: Iterable[Row], other: Iterable[Row]) -> str:
    """Describe what the two most similar cells of two methods differ in, such as ``version (0.7.0, 0.8.0)``."""
    candidates = [
        [f"{name} ({value}, {right[name]})" for name, value in left.items() if value != right[name]]
        for left, right in product(map(_pairing, one), map(_pairing, other))
    ]
    nearest: list[str] = min(candidates, key=len)
    return ", ".join(nearest)


def _canonical(wanted: str, known: set[str]) -> str:
    """The label among ``known`` that a user means; only options spelled out as defaults need the methods, and torch."""
    spec = Spec.read(wanted)
    if str(spec) not in known and spec.options and not spec.is_address:
        from ttc.bench.method_specs import without_defaults

        spec = without_defaults(spec)
    if str(spec) not in known:
        raise unknown("finished method", wanted, sorted(known))
    return str(spec)


def _setting(row: Row) -> dict[str, object]:
    cell = row.protocol
    names = ("dataset", "model", "model_checksum", "severity", "images", "batch_size", "scenario", "dtype", "version")
    return {name: getattr(cell, name) for name in names}


def _describe(row: Row) -> str:
    return f"{row.protocol.domain}, {row.protocol.scenario}, batch {row.protocol.batch_size}"


def _summary(method: str, rows: Sequence[Row], textures: str) -> Summary:
    by_seed: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_seed[row.protocol.seed].append(row)

    def over_seeds(figure: str) -> MeanStd:
        return mean_std([float(np.mean([row.figures[figure] for row in seed])) for seed in by_seed.values()])

    accuracy = over_seeds("accuracy")
    return Summary(
        method=method,
        setting={**_setting(rows[0]), "textures": textures},
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
