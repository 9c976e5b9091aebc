"""Regret: how far each method stays behind the best one, over batch sizes and orders of a stream."""

import numpy as np

from ttc.report.findings import Figure, ResultTable, Value
from ttc.report.heat_map import HeatPanel, heat_map
from ttc.studies.measurements import Measurements
from ttc.studies.study import THREE, Entry, Scale, Study

TUNED = ('tent+flip(optimizer="Adam(lr=3e-3)")', 'tent+rla(optimizer="Adam(lr=3e-3)")')
METHODS = (
    *("source", "source+flip", "norm", "norm+flip", "norm+flip(small_batches=True)", "t3a", "lame"),
    *("tent", "tent+flip", *TUNED, "ttc", "ttc(small_batches=True)", "roid", "rotta"),
    *("steady", "steady(learn_every=0)"),
)
SCENARIOS = (
    *("per-domain", "continual", "mixed", "clean-corrupt-clean"),
    *("label-shift(alpha=0.1)", "label-shift(alpha=0.01)"),
)
SIZES = (1, 2, 4, 8, 16, 32, 64, 100, 200)
SHIFT = "label-shift"

Cell = tuple[str, int]
"""A scenario and a batch size."""


def _row(method: str, cell: Cell) -> str:
    return f"{method}, {cell[0]}, N = {cell[1]}"


def accuracies(measured: Measurements) -> dict[Cell, dict[str, float]]:
    """Return the accuracy of every method in every cell, in percent, of those that were measured."""
    found: dict[Cell, dict[str, float]] = {}
    for entry in measured.study.entries:
        values = found.setdefault((entry.scenario, entry.batch_size), {})
        value = measured.accuracy(entry.name)
        if value is not None:
            values[entry.method] = value
    return found


def _rows(measured: Measurements) -> list[str]:
    """Return the methods of the study: a run may be of some of them."""
    return list(dict.fromkeys(entry.method for entry in measured.study.entries))


def _sizes(measured: Measurements) -> list[int]:
    return sorted({entry.batch_size for entry in measured.study.entries})


def _scenarios(measured: Measurements) -> tuple[str, ...]:
    return tuple(dict.fromkeys(entry.scenario for entry in measured.study.entries))


def regrets(accuracy: dict[Cell, dict[str, float]]) -> dict[str, dict[Cell, float]]:
    """Return by method and cell the best accuracy of any method in that cell minus its own.

    >>> regrets({("mixed", 1): {"tent": 10.0, "source": 50.0}})
    {'tent': {('mixed', 1): 40.0}, 'source': {('mixed', 1): 0.0}}
    """
    found: dict[str, dict[Cell, float]] = {}
    for cell, values in accuracy.items():
        for method, value in values.items():
            found.setdefault(method, {})[cell] = max(values.values()) - value
    return found


def _summary(measured: Measurements) -> ResultTable:
    accuracy = accuracies(measured)
    regret = regrets(accuracy)
    groups = {
        "mean": list(accuracy),
        "worst": list(accuracy),
        "mean, N ≤ 8": [cell for cell in accuracy if cell[1] <= 8],
        "mean, label shift": [cell for cell in accuracy if cell[0].startswith(SHIFT)],
    }
    rows: dict[str, dict[str, Value]] = {}
    for method in _rows(measured):
        values = regret.get(method, {})
        parts = {name: [values[cell] for cell in cells if cell in values] for name, cells in groups.items()}
        row = {name: _reduce(name, part) for name, part in parts.items()}
        below = [values["source"] - values[method] for values in accuracy.values() if {"source", method} <= set(values)]
        rows[method] = {name: Value(one) for name, one in row.items()}
        rows[method]["most below source"] = Value(max(0.0, *below) if below else None)
    worst = {method: max(values, key=values.__getitem__) for method, values in regret.items()}
    notes = tuple(f"{method} is worst in {scenario} at N = {size}." for method, (scenario, size) in worst.items())
    title = "Regret in points: the best accuracy in a cell minus a method's own"
    return ResultTable("regret", title, (*groups, "most below source"), rows, best="min", digits=1, notes=notes)


def _reduce(name: str, values: list[float]) -> float | None:
    return None if not values else float(max(values) if name == "worst" else np.mean(values))


def _table(measured: Measurements, size: int) -> ResultTable:
    rows = {
        method: {
            scenario: Value(
                measured.accuracy(_row(method, (scenario, size))), measured.error(_row(method, (scenario, size)))
            )
            for scenario in _scenarios(measured)
        }
        for method in _rows(measured)
    }
    title = f"Accuracy (%) with batches of {size}"
    return ResultTable(f"regret-accuracy-{size}", title, _scenarios(measured), rows)


def _tables(measured: Measurements) -> tuple[ResultTable, ...]:
    return (_summary(measured), *(_table(measured, size) for size in _sizes(measured)))


def _figures(measured: Measurements) -> tuple[Figure, ...]:
    regret, methods, sizes = regrets(accuracies(measured)), _rows(measured), _sizes(measured)
    panels = [
        HeatPanel(
            scenario,
            {f"N = {n}": {one: regret.get(one, {}).get((scenario, n)) for one in methods} for n in sizes},
            reasons={(f"N = {n}", one): measured.reason(_row(one, (scenario, n))) for n in sizes for one in methods},
        )
        for scenario in _scenarios(measured)
    ]
    note = "0 is the best method of a cell; a method without a bright cell can be used without knowing the stream."
    spec = heat_map(panels, "Regret by batch size and order of the stream", label="regret (points)")
    return (Figure("regret-heat-map", spec, note),)


STUDY = Study(
    name="regret",
    title="Which method never fails",
    about="How many points each method stays behind the best one of the same cell, over batch sizes and orders of a "
    "stream: one domain at a time, domains in sequence, mixed domains, clean images around corrupted ones, classes in "
    "bursts. The mean says what a user loses who does not choose, the worst cell what happens when the stream is not "
    "what the method expects. Not a study of the paper's: the peers have their own defaults, two controls a learning "
    "rate tuned on other corruptions, the best ones for small batches also small_batches=True.",
    setting="cifar10c",
    entries=tuple(
        Entry(_row(method, (scenario, size)), method, size, scenario=scenario)
        for size in SIZES
        for scenario in SCENARIOS
        for method in METHODS
    ),
    scale={
        "embedded": Scale(100, THREE),
        "cpu": Scale(2000, THREE),
        "real": Scale(2000, THREE),
        "paper": Scale(None),
    },
    embedded_sizes=(1, 4, 16, 100),
    elsewhere=True,
    baseline=_row("source", ("per-domain", 100)),
    contest=False,
    detailed=False,
    figures=_figures,
    extra=_tables,
    notes=(
        "Unless --images says otherwise, the embedded profile shows 100 images of each of three corruptions at "
        "severity 5: a standard error is about 3 points, so that the best of seventeen methods leads by chance too; "
        "little can be learned; and with batches of 100 a label shift is one batch, so that it shows there in nothing. "
        "It shows which methods fail where; for differences between good ones run the cpu profile, or more --images.",
        "STEADY was tuned on speckle noise, Gaussian blur, spatter and saturate alone, none of which is in this study.",
    ),
)
