"""Findings and plots of every kind, made to order."""

from collections.abc import Callable

from ttc.report.findings import AVERAGE, Cell, Claim, Figure, Findings, ResultTable, Spec, Value
from ttc.report.palette import style
from ttc.report.plots import (
    Curve,
    Panel,
    Rule,
    accuracy_figure,
    dot_plot,
    gain_plot,
    line_panels,
    line_plot,
    scatter_plot,
)

METHODS = ("SOURCE", "NORM", "T3A", "ETA", "TIPI", "TENT", "TTC", "NORM + flip", "TENT + flip")
COLUMNS = (AVERAGE, "gaussian_noise", "elastic_transform", "jpeg_compression")
SIZES = (1, 2, 4, 8, 16, 32, 64, 100, 200)


def dots() -> Spec:
    rows = {
        column: {
            method: (value := 40.0 + 5 * place + row, value - 1, value + 1) for place, method in enumerate(METHODS)
        }
        for row, column in enumerate(COLUMNS)
    }
    return dot_plot(rows, "Accuracy on each corruption")


def lines() -> Spec:
    curves = {}
    for place, method in enumerate(METHODS, 1):
        points = [(float(n), 10 + 70 * (1 - 1 / (n + place))) for n in SIZES]
        curves[method] = Curve(points, [(y - 2, y + 2) for _, y in points])
    styles = {"TENT": style("TENT")._replace(dashed=True)}
    return line_plot(
        curves, "Accuracy against batch size", x_label="batch size", ticks=SIZES, limits=(0, None), styles=styles,
        rules=[Rule("y", 10, "chance")],
    )  # fmt: skip


def gains() -> Spec:
    found = {"TTC": (1.8, 1.5, 2.1), "+SPC": (-0.7, -1.0, -0.3), "+GA": (-0.001, -0.1, 0.1)}
    return gain_plot(found, "Gains", label="points over TENT", paper={"TTC": 1.0})


def scatter() -> Spec:
    points = {method: (1.0 + place, (60.0 + place, 59.0 + place, 61.0 + place)) for place, method in enumerate(METHODS)}
    return scatter_plot(points, "Cost", x_label="milliseconds per image")


def panels() -> Spec:
    curve = Curve([(float(x), 50 + x / 10) for x in range(100)], [(40.0, 60.0)] * 100)
    left = Panel(
        "accuracy so far", {"TTC": curve, "TENT": curve}, "images", "accuracy (%)", (0, 100), [Rule("x", 9, "a")]
    )
    right = Panel("entropy", {"TTC": Curve([(0.0, 1.0), (9.0, 0.1)])}, "images", "nats")
    return line_panels([left, right], "Over time", styles={"TENT": style("TENT")._replace(dashed=True)})


def areas() -> Spec:
    curves = {name: Curve([(0.0, 0.1), (1.0, 0.9), (2.0, 0.0)]) for name in ("supervised", "TENT", "TTC")}
    return line_panels([Panel(f"channel {place}", curves) for place in range(6)], "Densities", columns=3, filled=True)


KINDS: dict[str, Callable[[], Spec]] = {
    function.__name__: function for function in (dots, lines, gains, scatter, panels, areas)
}


def result_table() -> ResultTable:
    rows = {
        "TENT": {AVERAGE: Value(70.0, 0.5, 81.5, ("a" * 64, "b" * 64)), "fog": Value(68.0, 0.7, 86.2, ("a" * 64,))},
        "TTC": {AVERAGE: Value(71.24, 0.5, 82.5, ("c" * 64,), "unlike the paper"), "fog": Value(None)},
        "TENT + flip": {AVERAGE: Value(-0.01, 0.5)},
    }
    return ResultTable("table", "Accuracy (%)", (AVERAGE, "fog"), rows, notes=("a note",))


def findings() -> Findings:
    table = result_table()
    protocol = {"method": "tent", "corruptions": ["fog"], "batch_size": 100, "seed": 0, "images": 5}
    cells = tuple(
        Cell(
            letter * 64,
            protocol,
            {"accuracy": 0.7, "nll": 1.0, "ece": 0.1},
            {"median_ms": 2.0},
            {"gpu": None},
            1.0,
            "now",
        )
        for letter in "abc"
    )
    claim = Claim("TTC improves on TENT.", "holds", "TTC − TENT: +1.24 points (+1.00 to +1.40)")
    figures = (accuracy_figure("main", "Accuracy", table), Figure("panels", panels(), "a caption"))
    return Findings(
        "study", "A study", "About it.", "cpu", "TTC is best.", (table,), (claim,), figures, ("note",), cells
    )
