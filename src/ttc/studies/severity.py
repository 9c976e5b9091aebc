"""Accuracy against severity, and the mean corruption error."""

import numpy as np

from ttc.bench.scenarios import CLEAN
from ttc.report.findings import Figure, ResultTable, Value
from ttc.report.plots import Curve, line_plot
from ttc.studies.corruption_error import ALEXNET, ALEXNET_CLEAN, Reference, corruption_errors, relative_errors
from ttc.studies.main_tables import CONTROL_NOTE
from ttc.studies.measurements import Measurements
from ttc.studies.study import ALL, FIVE, Entry, Greater, Study, scales

METHODS = {
    "SOURCE": "source",
    "NORM": "norm",
    "ETA": "eta",
    "TENT": "tent",
    "TTC": "ttc",
    "NORM + flip": "norm+flip",
    "TENT + flip": "tent+flip",
}
SEVERITIES = (1, 2, 3, 4, 5)
CONTROLS = ("NORM + flip", "TENT + flip")


def _row(method: str, severity: int) -> str:
    return f"{method}, severity {severity}" if severity else f"{method}, {CLEAN}"


def _methods(measured: Measurements) -> list[str]:
    names = {entry.name for entry in measured.study.entries}
    return [method for method in METHODS if _row(method, 5) in names]


def _by_severity(measured: Measurements) -> ResultTable:
    columns = {CLEAN: 0, **{f"severity {level}": level for level in SEVERITIES}}
    rows: dict[str, dict[str, Value]] = {}
    for method in _methods(measured):
        rows[method] = {}
        for column, level in columns.items():
            name = _row(method, level)
            hashes = tuple(row.protocol.hash for row in measured.rows(name))
            rows[method][column] = Value(measured.accuracy(name), measured.error(name), None, hashes)
    places = len(_corruptions(measured))
    return ResultTable(
        f"{measured.study.name}-averages",
        f"Accuracy (%) by severity, the mean over {places} corruption{'' if places == 1 else 's'}",
        tuple(columns),
        rows,
    )


def _corruptions(measured: Measurements) -> list[str]:
    return [name for name in measured.plan.corruptions if name != CLEAN]


def _errors(measured: Measurements, method: str) -> dict[str, float] | None:
    """The error per corruption in percent, the mean over the five severities; None while a cell is missing."""
    found: dict[str, float] = {}
    for corruption in _corruptions(measured):
        levels = [measured.accuracy(_row(method, level), corruption) for level in SEVERITIES]
        if any(level is None for level in levels):
            return None
        found[corruption] = 100 - float(np.mean([level for level in levels if level is not None]))
    return found


def _clean_error(measured: Measurements, method: str) -> float | None:
    accuracy = measured.accuracy(_row(method, 0))
    return None if accuracy is None else 100 - accuracy


def _reference(measured: Measurements) -> Reference | None:
    """AlexNet where the data has the classes of ImageNet, else the source model of this study."""
    if measured.classes == 1000:
        return Reference("AlexNet", ALEXNET, ALEXNET_CLEAN)
    errors = _errors(measured, "SOURCE")
    return None if errors is None else Reference("SOURCE", errors, _clean_error(measured, "SOURCE"))


def _corruption_errors(measured: Measurements) -> tuple[ResultTable, ...]:
    reference, places = _reference(measured), _corruptions(measured)
    if reference is None:
        return ()
    whole = set(places) == set(ALL)
    mean, relative = ("mCE", "relative mCE") if whole else ("mean CE", "mean relative CE")
    rows: dict[str, dict[str, Value]] = {}
    for method in _methods(measured):
        errors, clean = _errors(measured, method), _clean_error(measured, method)
        if errors is None:
            continue
        each = corruption_errors(errors, reference)
        row = {mean: float(np.mean([*each.values()])), **each}
        if clean is not None and reference.clean is not None:
            row[relative] = float(np.mean([*relative_errors(errors, clean, reference).values()]))
        rows[method] = {column: Value(value) for column, value in row.items()}
    which = "AlexNet's published errors" if reference.name == "AlexNet" else "the errors of SOURCE, which has 100"
    notes = [
        "CE is the error on a corruption, averaged over the severities 1 to 5, in percent of the reference: "
        f"{which}. The relative CE subtracts the clean errors first. Lower is better.",
    ]
    if reference.name == "AlexNet":
        notes.append(
            "The reference errors are those of the published ImageNet-C (Hendrycks and Dietterich, ICLR 2019); the "
            "images here were corrupted by ttc."
        )
    if not whole:
        notes.append(f"Not mCE, which is the mean over fifteen corruptions; this is the mean over {len(places)}.")
    name = f"{measured.study.name}-corruption-error"
    return (ResultTable(name, "Corruption error (%)", (mean, relative, *places), rows, best="min", notes=tuple(notes)),)


def _tables(measured: Measurements) -> tuple[ResultTable, ...]:
    return (_by_severity(measured), *_corruption_errors(measured))


def _figures(measured: Measurements) -> tuple[Figure, ...]:
    return curves(_by_severity(measured), measured.study.name)


def curves(table: ResultTable, study: str = "severity") -> tuple[Figure, ...]:
    """Return the figure of the averages by severity; 0 is the clean images."""
    found = {}
    for method, values in table.rows.items():
        every = [(level, values[column].interval) for level, column in enumerate(table.columns)]
        known = [(level, interval) for level, interval in every if interval is not None]
        if known:
            points = [(float(level), interval[0]) for level, interval in known]
            found[method] = Curve(points, [interval[1:] for _, interval in known])
    if not found:
        return ()
    spec = line_plot(
        found,
        "Average accuracy against severity",
        x_label="severity (0: clean images)",
        y_label="accuracy (%), with 95 % interval",
    )
    return (Figure(f"{study}-curves", spec, "What a method costs on clean images is its distance to SOURCE at 0."),)


STUDY = Study(
    name="severity",
    title="Accuracy against severity, and the corruption error",
    about="The benchmark's own metric averages over five severities; the paper's tables are of severity 5 alone. "
    "Methods meet each corruption at each severity, starting anew, and the clean images.",
    setting="cifar10c",
    elsewhere=True,
    entries=tuple(
        Entry(_row(method, level), spec, severity=level)
        for level in (0, *SEVERITIES)
        for method, spec in METHODS.items()
    ),
    scale=scales(FIVE),
    baseline=_row("SOURCE", 5),
    claims=(Greater("TTC improves on TENT.", _row("TTC", 5), _row("TENT", 5)),),
    figures=_figures,
    extra=_tables,
    notes=(
        CONTROL_NOTE,
        "The profiles run five corruptions; --corruptions all runs the fifteen that mCE is defined on.",
    ),
    labels=tuple(_row(method, 5) for method in METHODS),
    controls=tuple(_row(method, level) for method in CONTROLS for level in (0, *SEVERITIES)),
    detailed=False,
)
