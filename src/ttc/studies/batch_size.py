"""Small batches, with and without gradient accumulation."""

from ttc.report.findings import Figure, ResultTable, Value
from ttc.report.palette import style
from ttc.report.plots import Curve, Rule, line_plot
from ttc.studies.measurements import Measurements
from ttc.studies.study import Entry, Greater, Study, scales

SIZES = (1, 2, 4, 8, 16, 32, 64, 100, 200)
METHODS = {
    "SOURCE": "source",
    "NORM": "norm",
    "T3A": "t3a",
    "ETA": "eta",
    "TIPI": "tipi",
    "TENT": "tent",
    "TENT +GA": "tent+ga",
    "TTC without GA": "tent+rla+spc+ss",
    "TTC": "ttc",
    "NORM + flip": "norm+flip",
    "TENT + flip": "tent+flip",
}
CONTROLS = ("NORM + flip", "TENT + flip")
STYLES = {
    "TENT +GA": style("TENT")._replace(shape="triangle-right", dashed=True),
    "TTC without GA": style("TTC")._replace(shape="diamond", dashed=True),
}
STATED = {("TENT", 2): "TENT, CIFAR-10-C, batch size 2", ("TENT +GA", 2): "TENT+GA, CIFAR-10-C, batch size 2"}


def _row(method: str, size: int) -> str:
    return f"{method}, N = {size}"


def _by_size(measured: Measurements) -> tuple[ResultTable, ...]:
    rows: dict[str, dict[str, Value]] = {}
    names = {entry.name for entry in measured.study.entries}
    for method in (method for method in METHODS if _row(method, 100) in names):
        rows[method] = {}
        for size in SIZES:
            name = _row(method, size)
            hashes = tuple(row.protocol.hash for row in measured.rows(name))
            rows[method][f"N = {size}"] = Value(measured.accuracy(name), measured.error(name), None, hashes)
    columns = tuple(f"N = {size}" for size in SIZES)
    return (ResultTable("batch-size-averages", "Average accuracy (%) by batch size", columns, rows),)


def _curves(measured: Measurements) -> tuple[Figure, ...]:
    return curves(_by_size(measured)[0], 100 / (measured.classes or 10))


def curves(table: ResultTable, chance: float = 10.0) -> tuple[Figure, ...]:
    """Return the figure of the averages by batch size, with the accuracy of guessing."""
    found = {}
    for method, values in table.rows.items():
        every = [(size, values[f"N = {size}"].interval) for size in SIZES]
        known = [(size, interval) for size, interval in every if interval is not None]
        if known:
            points = [(float(size), interval[0]) for size, interval in known]
            found[method] = Curve(points, [interval[1:] for _, interval in known])
    if not found:
        return ()
    spec = line_plot(
        found,
        "Average accuracy against batch size",
        x_label="batch size",
        y_label="accuracy (%), with 95 % interval",
        ticks=SIZES,
        limits=(0, None),
        styles=STYLES,
        rules=[Rule("y", chance, "chance")],
    )
    note = "Dashed lines are the variants: TENT with, and TTC without, gradient accumulation."
    return (Figure("batch-size-curves", spec, note),)


STUDY = Study(
    name="batch-size",
    title="Average accuracy against batch size",
    about="Statistics of a small batch are poor and its gradient is noisy. Gradient accumulation adds up the "
    "gradients of about 200 images before each step, which mends the second fault and not the first. Of the methods "
    "here, TENT and TTC can accumulate.",
    setting="cifar10c",
    elsewhere=True,
    entries=tuple(
        Entry(_row(method, size), spec, size, STATED.get((method, size), ""))
        for size in SIZES
        for method, spec in METHODS.items()
    ),
    scale=scales(("gaussian_noise",)),
    table="batch-size",
    baseline="SOURCE, N = 100",
    claims=(
        Greater("At N = 2, gradient accumulation lifts TENT by tens of points.", "TENT +GA, N = 2", "TENT, N = 2", 10),
        Greater("At N = 1, TENT is below the source model.", "SOURCE, N = 1", "TENT, N = 1"),
        Greater("TENT gains with the batch: N = 100 over N = 8.", "TENT, N = 100", "TENT, N = 8"),
        Greater("At N = 8, TTC is above TENT.", "TTC, N = 8", "TENT, N = 8"),
    ),
    figures=_curves,
    extra=_by_size,
    notes=(
        "The paper's figure is not printed as numbers; it states two points of it, averages over all fifteen "
        "corruptions of CIFAR-10-C: TENT at N = 2 has 17.1 %, and 60.7 % with gradient accumulation.",
        "Accumulating means stepping rarely, so it can only prevent the harm that steps would have done: NORM, which "
        "never steps, is the line to compare TENT +GA with.",
        "The embedded and cpu profiles run one corruption, because small batches are slow. A collapse needs a long "
        "stream: with 2,000 images TENT takes 1,000 steps at N = 2, with all of them and in the paper 5,000.",
    ),
    labels=tuple(_row(method, 100) for method in METHODS),
    controls=tuple(_row(method, size) for method in CONTROLS for size in SIZES),
)
