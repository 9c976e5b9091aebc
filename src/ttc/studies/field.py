"""The field: every method in every scenario of its benchmarks, at three batch sizes, with the cost."""

import numpy as np

from ttc.bench.spec import Spec
from ttc.report.findings import Figure, ResultTable, Value
from ttc.report.heat_map import HeatPanel, heat_map
from ttc.studies.measurements import Measurements
from ttc.studies.study import ALL, THREE, Entry, Scale, Study

METHODS = (
    *("source", "norm", "t3a", "lame", "tent", "eta", "eata", "tipi", "ttc", "steady", "shot-im", "sar", "rdumb"),
    *("deyo", "come", "roid", "delta", "tsd", "tast", "memo", "cotta", "rotta", "rmt", "tesla", "adacontrast"),
)
SCENARIOS = (
    *("per-domain", "continual", "mixed", "gradual", "label-shift(alpha=0.1)", "long-tailed(ratio=10)"),
    "recurring(rounds=20)",
)
SINGLE = "single-image"
SIZES = (1, 16, 100)
LIGHTER = {  # in the embedded profile, which is to end within the hour on two cores
    "recurring(rounds=20)": "recurring(rounds=3)",
    "memo": "memo(views=8)",
    "rmt": "rmt(warm_up_samples=2000)",
    "cotta": "cotta(augmentations=8)",
}
TWO = ("gaussian_noise", "contrast")
COST = "ms per image"


def _row(method: str, scenario: str, size: int) -> str:
    return f"{method}, {_short(scenario)}, N = {size}"


def _short(scenario: str) -> str:
    return Spec.read(scenario).name


def _scenarios(size: int) -> tuple[str, ...]:
    return (*SCENARIOS, SINGLE) if size == 1 else SCENARIOS


def _embedded(scenario: str, size: int) -> Scale:
    """Fewer images with smaller batches, whose cost per image is higher; a sequence passes through many domains."""
    images = {1: 100, 16: 250, 100: 1000}[size]
    if _short(scenario) in {"continual", "mixed", "recurring"}:
        return Scale(images // 10, ALL)
    return Scale(images // 10 if _short(scenario) == "gradual" else images, TWO)


def _value(measured: Measurements, name: str) -> Value:
    hashes = tuple(row.protocol.hash for row in measured.rows(name))
    return Value(measured.accuracy(name), measured.error(name), None, hashes)


def _table(measured: Measurements, size: int) -> ResultTable:
    names = {_short(scenario): scenario for scenario in _scenarios(size)}
    rows = {
        method: {short: _value(measured, _row(method, scenario, size)) for short, scenario in names.items()}
        for method in METHODS
    }
    title = f"Accuracy (%) with batches of {size}" if size > 1 else "Accuracy (%) with single images"
    return ResultTable(f"field-{size}", title, tuple(names), rows, notes=_missing(measured, size))


def _costs(measured: Measurements) -> ResultTable:
    """The cost in the per-domain scenario: passes per image, and time per image at each batch size."""
    rows: dict[str, dict[str, Value]] = {}
    columns = ("forward passes", "backward passes", *(f"{COST}, N = {size}" for size in SIZES), "peak memory (MB)")
    for method in METHODS:
        largest = measured.rows(_row(method, "per-domain", SIZES[-1]))
        figures = [_mean([row.cost[name] for row in largest]) for name in ("forwards", "backwards")]
        times = [measured.cost(_row(method, "per-domain", size)) for size in SIZES]
        memory = _mean([row.cost["peak_memory_mb"] for row in largest])
        rows[method] = {column: Value(value) for column, value in zip(columns, [*figures, *times, memory], strict=True)}
    note = "Passes and peak memory with the largest batch. Times are of this machine while the cells ran."
    return ResultTable("field-cost", "Cost per image", columns, rows, best="min", digits=2, notes=(note,))


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _tables(measured: Measurements) -> tuple[ResultTable, ...]:
    return (*(_table(measured, size) for size in SIZES), _costs(measured))


def _missing(measured: Measurements, size: int) -> tuple[str, ...]:
    """Why numbers are missing, each reason once with the cells it concerns."""
    reasons: dict[str, list[str]] = {}
    for method in METHODS:
        for scenario in _scenarios(size):
            if reason := measured.reason(_row(method, scenario, size)):
                reasons.setdefault(reason, []).append(f"{method} ({_short(scenario)})")
    return tuple(f"— {', '.join(names)}: {reason}" for reason, names in reasons.items())


def _figures(measured: Measurements) -> tuple[Figure, ...]:
    return (field_figure(measured),)


def field_figure(measured: Measurements) -> Figure:
    """Return the heat map: methods across, scenarios down, a panel per batch size, the cost below each."""
    panels = []
    for size in SIZES:
        names = {_short(scenario): scenario for scenario in _scenarios(size)}
        cells = {
            short: {method: measured.accuracy(_row(method, scenario, size)) for method in METHODS}
            for short, scenario in names.items()
        }
        reasons = {
            (short, method): measured.reason(_row(method, scenario, size))
            for short, scenario in names.items()
            for method in METHODS
        }
        cost = {COST: {method: measured.cost(_row(method, "per-domain", size)) for method in METHODS}}
        panels.append(HeatPanel(f"batch size {size}", cells, cost, reasons))
    note = "The last row of each panel is the time per image in the per-domain scenario, on the machine of the run."
    spec = heat_map(panels, "Every method in every scenario", label="accuracy (%)")
    return Figure("field-heat-map", spec, note)


STUDY = Study(
    name="field",
    title="Every method in every scenario",
    about="The methods of the field with their own defaults, in the scenarios of its benchmarks: one domain at a time, "
    "domains in sequence, mixed, with rising and falling severity, with classes in bursts, with rare classes, "
    "with domains that return, and single images. Not a study of the paper's: nothing was tuned to this model or data.",
    setting="cifar10c",
    entries=tuple(
        Entry(_row(method, scenario, size), method, size, scenario=scenario, embedded=_embedded(scenario, size))
        for size in SIZES
        for scenario in _scenarios(size)
        for method in METHODS
    ),
    scale={
        "embedded": Scale(1000, TWO),
        "cpu": Scale(1000, THREE),
        "real": Scale(1000, THREE),
        "paper": Scale(None),
    },
    baseline=_row("source", "per-domain", 100),
    contest=False,
    detailed=False,
    figures=_figures,
    extra=_tables,
    lighter=LIGHTER,
    notes=(
        "The embedded profile shows 1,000, 250 or 100 images of each of two corruptions at severity 5 in batches of "
        "100, 16 or 1; continual, mixed and recurring go through all fifteen corruptions with a tenth of these images "
        "each, gradual through nine levels of the two. Standard errors are 1 to 5 points: it shows which methods fail "
        "where, not which of two good ones is better. For the latter run the cpu profile.",
        "In the embedded profile the domains return 3 times instead of 20, MEMO and CoTTA have 8 views instead of 32, "
        "and the warm-up of RMT has 2,000 images instead of 50,000.",
        "Recurring domains are scored in the last round; long-tailed streams leave images out, the others show every "
        "image once per pass. Gradual goes through the severities 1 to 5 and back.",
    ),
)
