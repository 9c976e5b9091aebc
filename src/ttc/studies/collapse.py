"""TENT on single images: the entropy reaches its minimum and the accuracy falls to chance."""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ttc.report.findings import Figure
from ttc.report.formatting import readable
from ttc.report.palette import BLUE, ORANGE, SKY, Style
from ttc.report.plots import Curve, Panel, Rule, line_panels
from ttc.studies.measurements import Measurements
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
    "TENT (batch size = 1)": Style(BLUE),
    "TENT (batch size = 20)": Style(SKY, dashed=True),
    "TENT (batch size = 100)": Style(SKY),
    "TTC (batch size = 1)": Style(ORANGE, dashed=True),
}
Points = list[tuple[float, float]]


def _so_far(trace: NDArray[np.float64], column: int) -> Points:
    """Images seen, and the mean of a column over all of them."""
    seen = np.cumsum(trace[:, 0])
    mean = np.cumsum(trace[:, 0] * trace[:, column]) / seen
    every = max(1, len(trace) // POINTS)
    return [(float(x), float(y)) for x, y in zip(seen[every - 1 :: every], mean[every - 1 :: every], strict=True)]


def _in_parts(trace: NDArray[np.float64], column: int) -> Points:
    """Images seen, and the mean of a column over the last part of them."""
    seen = np.cumsum(trace[:, 0])
    edges = np.linspace(0, seen[-1], min(POINTS, len(trace)) + 1)
    parts = [(seen > low) & (seen <= high) for low, high in pairwise(edges)]
    return [
        (float(seen[part][-1]), float(np.average(trace[part, column], weights=trace[part, 0])))
        for part in parts
        if part.any()
    ]


def _traces(measured: Measurements) -> tuple[Figure, ...]:
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
    return (trace_figure(accuracy, entropy, corruption, 100 / (measured.classes or 10)),)


def trace_figure(
    accuracy: Mapping[str, Points], entropy: Mapping[str, Points], corruption: str, chance: float = 10.0
) -> Figure:
    """Return the figure of accuracy (%) and entropy (nats) against the images seen."""
    left = Panel(
        "accuracy so far",
        {name: Curve(points, [_binomial(*point) for point in points]) for name, points in accuracy.items()},
        "images seen",
        "accuracy (%), with 95 % interval",
        (0, 100),
        [Rule("y", chance, "chance")],
    )
    curves = {name: Curve(points) for name, points in entropy.items()}
    right = Panel("entropy of the predictions", curves, "images seen", "entropy (nats)", (0, None))
    title = f"What happens over time: {readable(corruption)}"
    note = (
        "Accuracy over all images so far, with its 95 % interval; entropy over each part of the stream. An entropy "
        "near zero is certainty, not accuracy."
    )
    return Figure("collapse-traces", line_panels([left, right], title, styles=STYLES, height=240), note)


def _binomial(images: float, percent: float) -> tuple[float, float]:
    """The 95 % interval of an accuracy over so many images."""
    half = 1.96 * (percent * (100 - percent) / images) ** 0.5
    return percent - half, percent + half


STUDY = Study(
    name="collapse",
    title="TENT collapses on single images",
    about="Minimizing the entropy makes the largest probability larger, right or wrong. With one image in a batch "
    "nothing counteracts this: TENT ends by giving every image the same label.",
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
    notes=(
        "The paper gives averages over all fifteen corruptions only, so they appear beside ours only where all fifteen "
        "were run.",
    ),
)
