"""The diagnosis of a stream: the paper's Remarks 1 and 2, measured."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ttc.bench.grid import Grid, cells
from ttc.bench.protocol import Protocol
from ttc.bench.workload import ResolvedWorkload
from ttc.clustering.reference import has_reference_assigners, kmeans, spectral
from ttc.core import Classifier
from ttc.report.findings import AVERAGE, Figure, Findings, ResultTable, Value
from ttc.report.formatting import gain_text, number, readable
from ttc.report.plots import Curve, dot_plot, line_plot
from ttc.studies.cycle_measures import (
    GradientSpread,
    Observed,
    entropy_gradient,
    gradient_spreads,
    neighbour_agreement,
    observe,
    selected_gradient,
)

NEIGHBOURS = (1, 2, 5, 10, 20)
SIZES = (1, 2, 4, 8, 16, 32, 64)
ONE, FUSED, KMEANS, SPECTRAL = "one view", "fused views", "k-means", "spectral"
WRONG, RIGHT = "wrong samples removed", "right samples removed"
GRADIENTS = {"entropy of all samples": entropy_gradient, "fused views, selected samples": selected_gradient}
Estimate = tuple[float, float, float]


@dataclass(frozen=True)
class Diagnosis:
    """The measurements of one stream.

    Args:
        images: Its number of images.
        accuracy: The accuracy (%) of each assignment.
        removed: The fraction (%) of wrong and of right samples that selection removes, with its number of samples.
        same_label: The fraction (%) of nearest neighbours with the same label, for each of ``NEIGHBOURS``.
        same_prediction: The fraction (%) with the same predicted class.
        spreads: How much each gradient varies, for each batch size that the stream allows.
        gains: For each image 1 if fusing views corrected its assignment, -1 if it spoiled it, else 0.
    """

    images: int
    accuracy: Mapping[str, float]
    removed: Mapping[str, tuple[float, int]]
    same_label: Sequence[float]
    same_prediction: Sequence[float]
    spreads: Mapping[str, Sequence[GradientSpread]] = field(default_factory=dict)
    gains: Sequence[int] = ()


def diagnose_streams(grid: Grid, workload: ResolvedWorkload) -> Findings:
    """Diagnose a method on the streams of a grid.

    Args:
        grid: One method with an A-step and a U-step, one batch size and one seed; a stream per corruption.
        workload: The data and the model.

    Raises:
        TTCError: If something does not exist, or the method has nothing to diagnose.
    """
    found = {cell.corruptions[0]: diagnose(workload, cell) for cell in cells(grid, workload)}
    return findings_of(found, str(grid.methods[0]), grid.batch_sizes[0])


def diagnose(workload: ResolvedWorkload, protocol: Protocol) -> Diagnosis:
    """Measure one stream."""
    seen = observe(workload, protocol)
    nearest = [count for count in NEIGHBOURS if count < len(seen.labels)]
    agreement = [neighbour_agreement(seen.features, classes, nearest) for classes in (seen.labels, seen.plain)]
    classes = int(max(seen.labels.max(), seen.plain.max())) + 1
    network = Classifier(workload.network(classes, protocol.dtype, protocol.device))
    sizes = [size for size in SIZES if size <= len(seen.images)]
    images = seen.images.to(protocol.device)
    return Diagnosis(
        images=len(seen.labels),
        accuracy={name: _percent(chosen == seen.labels) for name, chosen in _assignments(seen).items()},
        removed=_removed(seen),
        same_label=[100 * value for value in agreement[0]],
        same_prediction=[100 * value for value in agreement[1]],
        gains=((seen.fused == seen.labels).int() - (seen.plain == seen.labels).int()).tolist(),
        spreads={name: gradient_spreads(network, images, sizes, one) for name, one in GRADIENTS.items()},
    )


def findings_of(found: Mapping[str, Diagnosis], method: str, batch_size: int) -> Findings:
    """Return the tables and figures of some streams."""
    images = next(iter(found.values())).images
    missing = () if has_reference_assigners() else ("k-means and spectral clustering need scikit-learn: not measured.",)
    return Findings(
        study="diagnosis",
        title="The clustering view of a stream",
        about=f"The A-step and the U-step of {method} on {images:,} images per corruption in batches of {batch_size}, "
        "adapting as they come. Labels are used to measure, never to adapt.",
        profile="",
        headline=_headline(found),
        tables=(_table(found),),
        figures=(
            _dots(found, {name: _accuracy(found, name) for name in _names(found)}, "diagnosis-assignment",
                  "Accuracy of the assignment", "accuracy (%)",
                  "Remark 1: what counts in the A-step is an accurate assignment. k-means and spectral clustering see "
                  "the features of the whole stream at once."),
            _agreement_figure(found),
            _dots(found, {name: {key: _interval(*one.removed[name]) for key, one in found.items()}
                          for name in (WRONG, RIGHT)}, "diagnosis-selection",
                  "What selection removes", "removed (%)",
                  "Of the samples that the fused views assign to a wrong class, and of the others, the fraction that "
                  "selection leaves out of the update."),
            _gradient_figure(found),
        ),
        notes=(
            "Intervals are 95 % binomial over images.",
            "Gradients are those of 12 random batches per size and one seed, at the source parameters. Their spread, "
            "the square root of their variance, is relative to the norm of the mean gradient of the largest batches; "
            "the cosine is that of the two means, so it is 1 for the largest by definition. A cosine near zero says "
            "that the mean gradient of small batches has another direction than that of large ones.",
            *missing,
        ),
    )  # fmt: skip


def _assignments(seen: Observed) -> dict[str, Tensor]:
    found = {ONE: seen.plain, FUSED: seen.fused}
    if has_reference_assigners() and len(seen.plain.unique()) > 1:
        found |= {KMEANS: kmeans(seen.features, seen.plain), SPECTRAL: spectral(seen.features, seen.plain)}
    return found


def _removed(seen: Observed) -> dict[str, tuple[float, int]]:
    wrong = seen.fused != seen.labels
    return {
        name: (_percent(~seen.selected[which]) if bool(which.any()) else 0.0, int(which.sum()))
        for name, which in ((WRONG, wrong), (RIGHT, ~wrong))
    }


def _percent(which: Tensor) -> float:
    return 100 * float(which.double().mean())


def _interval(percent: float, count: int) -> Estimate:
    half = 196 * math.sqrt(percent / 100 * (1 - percent / 100) / max(count, 1))
    return percent, max(0.0, percent - half), min(100.0, percent + half)


def _names(found: Mapping[str, Diagnosis]) -> list[str]:
    return list(dict.fromkeys(name for one in found.values() for name in one.accuracy))


def _accuracy(found: Mapping[str, Diagnosis], name: str) -> dict[str, Estimate]:
    return {key: _interval(one.accuracy[name], one.images) for key, one in found.items() if name in one.accuracy}


def _dots(
    found: Mapping[str, Diagnosis], series: Mapping[str, Mapping[str, Estimate]], name: str, title: str, label: str,
    caption: str,
) -> Figure:  # fmt: skip
    rows = {key: {one: values[key] for one, values in series.items() if key in values} for key in found}
    return Figure(name, dot_plot(rows, title, label=label), caption)


def _agreement_figure(found: Mapping[str, Diagnosis]) -> Figure:
    curves = {}
    for key, one in found.items():
        for title, values in (("same label", one.same_label), ("same prediction", one.same_prediction)):
            curves[f"{readable(key)}, {title}"] = Curve(list(zip(map(float, NEIGHBOURS), values, strict=False)))
    spec = line_plot(
        curves, "Agreement between nearest neighbours in feature space", x_label="nearest neighbours",
        y_label="agreement (%)", ticks=NEIGHBOURS, limits=(0, 100),
    )  # fmt: skip
    caption = "The fraction of a sample's nearest neighbours, by cosine, with its label, or with its predicted class."
    return Figure("diagnosis-neighbours", spec, caption)


def _gradient_figure(found: Mapping[str, Diagnosis]) -> Figure:
    curves = {}
    for name in GRADIENTS:
        streams = [one.spreads[name] for one in found.values()]
        means = [sum(one.spread for one in column) / len(column) for column in zip(*streams, strict=True)]
        curves[name] = Curve([(float(size), mean) for size, mean in zip(SIZES, means, strict=False)])
    spec = line_plot(
        curves, "Spread of the gradient against batch size", x_label="batch size",
        y_label="standard deviation over norm", ticks=SIZES, limits=(0, None),
    )  # fmt: skip
    caption = (
        "Remark 2 says that more samples give a stabler gradient. Shown is the standard deviation over the norm of the "
        "mean gradient of the largest batches, mean over the corruptions. A single image is a case of its own: with "
        "its own BatchNorm statistics its gradient may vary little and yet point elsewhere (see the cosines)."
    )
    return Figure("diagnosis-gradient", spec, caption)


def _table(found: Mapping[str, Diagnosis]) -> ResultTable:
    rows: dict[str, dict[str, Value]] = {}
    for name in _names(found):
        rows[f"accuracy, {name} (%)"] = {key: Value(one.accuracy.get(name)) for key, one in found.items()}
    for name in (WRONG, RIGHT):
        rows[f"{name} (%)"] = {key: Value(one.removed[name][0]) for key, one in found.items()}
    rows["nearest neighbour: same label (%)"] = {key: Value(one.same_label[0]) for key, one in found.items()}
    rows["nearest neighbour: same prediction (%)"] = {key: Value(one.same_prediction[0]) for key, one in found.items()}
    for name in GRADIENTS:
        for size in (1, 16, 64):
            places = {key: one.spreads[name][SIZES.index(size) :] for key, one in found.items()}
            rows[f"gradient spread, N = {size}: {name}"] = {
                key: Value(rest[0].spread if rest else None) for key, rest in places.items()
            }
            rows[f"gradient cosine, N = {size}: {name}"] = {
                key: Value(rest[0].cosine if rest else None) for key, rest in places.items()
            }
    for values in rows.values():
        known = [value.ours for value in values.values() if value.ours is not None]
        values[AVERAGE] = Value(sum(known) / len(known) if len(known) == len(found) else None)
    return ResultTable("diagnosis", "Measured", (AVERAGE, *found), rows, best="", digits=2, what="measure")


def _headline(found: Mapping[str, Diagnosis]) -> str:
    def mean(values: Sequence[float]) -> str:
        return number(float(torch.tensor(values).mean()))

    fused, one = (mean([stream.accuracy[name] for stream in found.values()]) for name in (FUSED, ONE))
    wrong, right = (mean([stream.removed[name][0] for stream in found.values()]) for name in (WRONG, RIGHT))
    gains = torch.tensor([stream.gains for stream in found.values()]).double().mean(0)  # an image counts once
    gain, half = 100 * float(gains.mean()), 196 * float(gains.std()) / math.sqrt(len(gains))
    return (
        f"Fusing views takes the accuracy of the assignment from {one} % to {fused} %, a gain of "
        f"{gain_text(gain, gain - half, gain + half)}; selection removes {wrong} % of "
        f"the wrong samples and {right} % of the right ones."
    )
