"""Pictures that several studies share."""

from ttc.report import Rule, bar_chart, dot_chart, scatter_chart
from ttc.report.findings import Figure
from ttc.studies.measured import Measured, published
from ttc.studies.study import Entry


def per_corruption(measured: Measured) -> tuple[Figure, ...]:
    """Accuracy on each corruption, and what it costs."""
    names = [entry.name for entry in measured.study.entries if "(" not in entry.name]
    rows: dict[str, dict[str, float]] = {}
    for corruption in (*measured.plan.corruptions, "average"):
        place = None if corruption == "average" else corruption
        found = {name: measured.accuracy(name, place) for name in names}
        rows[corruption] = {name: value for name, value in found.items() if value is not None}
    study = measured.study.name
    title = f"Accuracy on each corruption: {measured.setup.title}"
    dots = Figure(f"{study}-corruptions", dot_chart(rows, title), "Each mark is a method; further right is better.")
    return (dots, *cost(measured, names))


def cost(measured: Measured, names: list[str]) -> tuple[Figure, ...]:
    """Average accuracy against milliseconds an image."""
    points = {}
    for name in names:
        accuracy, milliseconds = measured.accuracy(name), measured.cost(name)
        if accuracy is not None and milliseconds is not None:
            points[name] = (milliseconds, accuracy)
    if not points:
        return ()
    chart = scatter_chart(points, "Cost against accuracy", x_label="milliseconds an image, on the machine of the run")
    note = "Measured while the cells ran, so other work on the machine shows; up and left is better."
    return (Figure(f"{measured.study.name}-cost", chart, note),)


def gains(measured: Measured, title: str) -> tuple[Figure, ...]:
    """The change of each row's average against the baseline, with its 95 % interval, and the paper's where known."""
    base = measured.study.baseline
    found = {
        entry.name: gain
        for entry in measured.study.entries
        if entry.name != base and (gain := measured.gain(entry.name, base)) is not None
    }
    if not found:
        return ()
    theirs = {}
    for entry in measured.study.entries:
        value, level = published(measured, entry), published(measured, _entry(measured, base))
        if entry.name in found and value is not None and level is not None:
            theirs[entry.name] = value - level
    chart = bar_chart(
        {name: gain.estimate for name, gain in found.items()},
        title,
        label=f"points over {base}, with 95 % interval",
        spread={name: (gain.low, gain.high) for name, gain in found.items()},
        digits=2,
        sign=True,
        rules=[Rule("x", 0.0, base)],
        beside={"paper": theirs} if theirs else None,
    )
    return (
        Figure(f"{measured.study.name}-gains", chart, "Image by image; the line across a bar's end is its interval."),
    )


def _entry(measured: Measured, name: str) -> Entry:
    return next(entry for entry in measured.study.entries if entry.name == name)
