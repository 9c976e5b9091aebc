"""TENT on single images: the entropy reaches its minimum and the accuracy is gone."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ttc.report import Panels, Rule, line_chart
from ttc.report.findings import Figure
from ttc.report.palette import Style
from ttc.studies.measured import Measured
from ttc.studies.study import THREE, Entry, Greater, Study, scales

ENTRIES = (
    Entry("SOURCE", "source", 100, "SOURCE"),
    Entry("TENT (batch size = 1)", "tent", 1, "TENT (batch size = 1)"),
    Entry("TENT (batch size = 20)", "tent", 20, "TENT (batch size = 20)"),
    Entry("TENT (batch size = 100)", "tent", 100),
    Entry("TTC (batch size = 1)", "ttc", 1),
)
POINTS = 25  # of a curve
STYLES = {
    "TENT (batch size = 100)": Style("#56b4e9"),
    "TENT (batch size = 20)": Style("#56b4e9"),
}


def _so_far(trace: NDArray[np.float64], column: int) -> list[tuple[float, float]]:
    """Images seen, and the mean of a column over all of them."""
    seen = np.cumsum(trace[:, 0])
    mean = np.cumsum(trace[:, 0] * trace[:, column]) / seen
    every = max(1, len(trace) // POINTS)
    return [(float(x), float(y)) for x, y in zip(seen[every - 1 :: every], mean[every - 1 :: every], strict=True)]


def _in_parts(trace: NDArray[np.float64], column: int) -> list[tuple[float, float]]:
    """Images seen, and the mean of a column over the last part of them."""
    seen = np.cumsum(trace[:, 0])
    edges = np.linspace(0, seen[-1], min(POINTS, len(trace)) + 1)
    parts = [(seen > low) & (seen <= high) for low, high in pairwise(edges)]
    return [
        (float(seen[part][-1]), float(np.average(trace[part, column], weights=trace[part, 0])))
        for part in parts
        if part.any()
    ]


def _traces(measured: Measured) -> tuple[Figure, ...]:
    corruption = measured.plan.corruptions[0]
    found = {
        entry.name: rows[0].trace.astype(np.float64)
        for entry in ENTRIES
        if (rows := measured.rows(entry.name, corruption))
    }
    if not found:
        return ()
    accuracy = {name: [(x, 100 * y) for x, y in _so_far(trace, 1)] for name, trace in found.items()}
    entropy = {name: _in_parts(trace, 2) for name, trace in found.items()}
    dashed = ("TENT (batch size = 20)", "TTC (batch size = 1)")
    left = line_chart(accuracy, "accuracy so far (%)", x_label="images seen", y_label="", low=0, high=100, marked=False,
                      styles=STYLES, dashed=dashed, rules=[Rule("y", 10.0, "chance")], height=220)  # fmt: skip
    right = line_chart(
        entropy,
        "entropy of the answers (nats)",
        x_label="images seen",
        y_label="",
        low=0,
        marked=False,
        dashed=dashed,
        styles=STYLES,
        height=220,
    )
    title = f"What happens over time: {corruption.replace('_', ' ')}"
    note = (
        "Accuracy over all images so far; entropy over each part of the stream. An entropy near zero is certainty, "
        "not accuracy."
    )
    return (Figure("collapse-traces", Panels(title, (left, right), least=330), note),)


STUDY = Study(
    name="collapse",
    title="TENT collapses on single images",
    about="Minimizing the entropy makes the largest probability larger, right or wrong. With one image in a batch "
    "nothing holds it back: TENT ends by giving everything one label.",
    setting="cifar10c",
    contest=False,
    elsewhere=True,
    entries=ENTRIES,
    scale=scales(THREE),
    table="collapse",
    claims=(
        Greater("TENT with single images falls below the source model.", "SOURCE", "TENT (batch size = 1)"),
        Greater("Twenty images are enough to avoid it.", "TENT (batch size = 20)", "TENT (batch size = 1)", 10),
        Greater("TENT with twenty images is above the source model.", "TENT (batch size = 20)", "SOURCE"),
    ),
    figures=_traces,
    notes=("The paper's numbers here are averages over all fifteen corruptions.",),
)
