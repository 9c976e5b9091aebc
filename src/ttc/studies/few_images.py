"""Batches of one and of eight images, as they are and with ``small_batches``."""

from ttc.report.findings import ResultTable, Value
from ttc.studies.main_tables import CONTROL_NOTE
from ttc.studies.measurements import Measurements
from ttc.studies.study import THREE, Entry, Study, scales

METHODS = {
    "NORM": "norm",
    "TENT": "tent",
    "ETA": "eta",
    "TTC": "ttc",
    "NORM + flip": "norm+flip",
    "TENT + flip": "tent+flip",
}
SIZES = (1, 8)
CONTROLS = ("NORM + flip", "TENT + flip")
FORMS = {"as it is": "", "small_batches": "(small_batches=True)"}


def _row(method: str, size: int, form: str) -> str:
    return f"{method}, N = {size}, {form}"


def _tables(measured: Measurements) -> tuple[ResultTable, ...]:
    return _averages(measured), _gains(measured)


def _averages(measured: Measurements) -> ResultTable:
    columns = {f"N = {size}, {form}": (size, form) for size in SIZES for form in FORMS}
    rows: dict[str, dict[str, Value]] = {}
    for method in ("SOURCE", *METHODS):
        rows[method] = {}
        for column, (size, form) in columns.items():
            name = "SOURCE" if method == "SOURCE" else _row(method, size, form)
            hashes = tuple(row.protocol.hash for row in measured.rows(name))
            rows[method][column] = Value(measured.accuracy(name), measured.error(name), None, hashes)
    title = "Average accuracy (%) with few images in a batch"
    return ResultTable(f"{measured.study.name}-averages", title, tuple(columns), rows)


def _gains(measured: Measurements) -> ResultTable:
    rows: dict[str, dict[str, Value]] = {}
    for method in METHODS:
        rows[method] = {}
        for size in SIZES:
            gain = measured.gain(*(_row(method, size, form) for form in reversed(FORMS)))
            error = (gain.high - gain.low) / (2 * 1.96) if gain else None
            rows[method][f"N = {size}"] = Value(gain.estimate if gain else None, error)
    title = "What small_batches adds, in points"
    return ResultTable(f"{measured.study.name}-gains", title, tuple(f"N = {size}" for size in SIZES), rows, digits=2)


STUDY = Study(
    name="few-images",
    title="One and eight images in a batch, with and without small_batches",
    about="Statistics of one image are not those of a stream. With small_batches a method normalizes with a moving "
    "average over the images it has seen and steps every 200 of them, whatever the batch size.",
    setting="cifar10c",
    elsewhere=True,
    entries=(
        Entry("SOURCE", "source"),
        *(
            Entry(_row(method, size, form), f"{spec}{option}", size)
            for size in SIZES
            for form, option in FORMS.items()
            for method, spec in METHODS.items()
        ),
    ),
    scale=scales(THREE),
    extra=_tables,
    notes=(CONTROL_NOTE, "SOURCE does not depend on the batch."),
    labels=("SOURCE", *(_row(method, 1, form) for form in FORMS for method in METHODS)),
    controls=tuple(_row(method, size, form) for method in CONTROLS for size in SIZES for form in FORMS),
    contest=False,
    detailed=False,
)
