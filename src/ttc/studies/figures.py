"""Figures that several studies share."""

from ttc.report.findings import Figure
from ttc.report.plots import Estimate, accuracy_figure, gain_plot, scatter_plot
from ttc.studies.measurements import Measurements, published
from ttc.studies.study import Entry


def per_corruption(measured: Measurements) -> tuple[Figure, ...]:
    """Return the accuracy on each corruption, and what it costs."""
    from ttc.studies.reproduction import accuracy_table

    names = measured.study.labels
    title = f"Accuracy on each corruption: {measured.setup.title}"
    dots = accuracy_figure(f"{measured.study.name}-corruptions", title, accuracy_table(measured), names)
    points = {}
    for name in names:
        accuracy, error, milliseconds = measured.accuracy(name), measured.error(name), measured.cost(name)
        if accuracy is not None and error is not None and milliseconds is not None:
            points[name] = (milliseconds, (accuracy, accuracy - 1.96 * error, accuracy + 1.96 * error))
    return (dots, *([cost_figure(measured.study.name, points)] if points else []))


def cost_figure(study: str, points: dict[str, tuple[float, Estimate]]) -> Figure:
    """Return average accuracy against milliseconds per image: ``{method: (milliseconds, accuracy)}``."""
    spec = scatter_plot(points, "Cost against accuracy", x_label="milliseconds per image")
    note = "Of the machine of the run; with one thread on the CPU, processor time. Up and left is better."
    return Figure(f"{study}-cost", spec, note)


def gains(measured: Measurements, title: str) -> tuple[Figure, ...]:
    """Return the gain of each row's average over the baseline, with its 95 % interval, and the paper's where known."""
    base = measured.study.baseline
    found: dict[str, Estimate] = {
        entry.name: (gain.estimate, gain.low, gain.high)
        for entry in measured.study.entries
        if entry.name != base and (gain := measured.gain(entry.name, base)) is not None
    }
    if not found:
        return ()
    theirs = {}
    level = published(measured, _entry(measured, base))
    for entry in measured.study.entries:
        value = published(measured, entry)
        if entry.name in found and value is not None and level is not None:
            theirs[entry.name] = value - level
    return (gains_figure(measured.study.name, title, base, found, theirs),)


def gains_figure(study: str, title: str, base: str, found: dict[str, Estimate], paper: dict[str, float]) -> Figure:
    """Return the figure of gains over a baseline."""
    spec = gain_plot(found, title, label=f"points over {base}, with 95 % interval", paper=paper)
    return Figure(f"{study}-gains", spec, "Paired by image; the line across a bar's end is its 95 % interval.")


def _entry(measured: Measurements, name: str) -> Entry:
    return next(entry for entry in measured.study.entries if entry.name == name)
