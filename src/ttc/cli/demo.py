"""``ttc demo``: the paper's comparison on the images and the model that come with the package."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ttc.cli.data import DataOption
from ttc.cli.wording import decimal, plural

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console
    from rich.table import Table

    from ttc.bench.store import Row

FEW = 10  # steps below which adaptation has hardly begun
CONTROLS = ("norm+flip", "tent+flip")  # what predicting with the mean over the image and its flip brings alone
PAPER_TABLE = "cifar10c-wrn28-10"
WHY = (
    "The paper's numbers are those of a WideResNet-28-10 with 36 million parameters on the published CIFAR-10-C. Here "
    "a ResNet-20 with 0.27 million is tested on our own corruptions of fewer images, so the level is lower; what "
    "carries over is the order of the methods and the distance between them."
)

Accuracies = Mapping[str, Mapping[str, float]]  # {corruption: {METHOD: percent}}


def demo(
    images: Annotated[int, typer.Option(help="Images per corruption, 1 to 2,000.")] = 500,
    full: Annotated[bool, typer.Option("--full", help="All 2,000 images.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write every number with its protocol to this file.")] = None,
    figure: Annotated[Path, typer.Option(help="Where the figure goes: .png, .svg or .pdf.")] = Path("ttc-demo.png"),
    data: DataOption = None,
) -> None:
    """Compare the paper's seven methods and two controls on fifteen corruptions of real CIFAR-10 images, offline.

    The controls predict as TTC does, with the mean over the image and its flip. Severity 5, batches of 100, a reset
    before each corruption, one pass. After Ctrl-C the same command resumes.
    """
    from rich.console import Console

    from ttc.bench.environment import cores
    from ttc.bench.grid import Grid, cells
    from ttc.bench.spec import Spec
    from ttc.bench.workload import Workload
    from ttc.cli.run_loop import exit_if_failed, run_cells
    from ttc.report.rendering import kind_of

    kind_of(figure)  # a wrong name is found before anything runs
    console = Console(highlight=False)
    workload = Workload(root=data).resolve()
    methods = tuple(Spec(name) for name in _methods())
    wanted = cells(Grid(methods=methods, corruptions=_corruptions(), images=2000 if full else images), workload)
    console.print(
        f"{len({cell.method for cell in wanted})} methods on {len({cell.corruptions for cell in wanted})} corruptions, "
        f"severity 5: {plural(wanted[0].images, 'image')} each, batches of {wanted[0].batch_size}, a reset before each"
    )
    store = workload.cache.parent / "demo.sqlite"
    done = run_cells(wanted, workload, store, cores(), console)
    exit_if_failed(done, store, console)
    _print_summary(done.rows, console)
    console.print(f"\n{_draw(done.rows, figure)}", markup=False, soft_wrap=True)
    if json is not None:
        _write(done.rows, json)
        console.print(f"every number with its protocol: {json}")
    console.print(
        "next: [bold]ttc adapt embedded FOLDER[/bold] adapts over images of your own, [bold]ttc reproduce "
        "components[/bold] measures what each part of TTC adds"
    )


def _methods() -> tuple[str, ...]:
    """Return the methods of the table, TTC beside the controls that predict with its two views."""
    from ttc.bench.grid import PAPER

    return *PAPER[:-1], *CONTROLS, PAPER[-1]


def _corruptions() -> tuple[str, ...]:
    """Return the corruptions of the table, those of the paper."""
    from ttc.corruptions import CORRUPTIONS

    return CORRUPTIONS


def _title(method: str) -> str:
    """Name a method in the table and the figure.

    >>> _title("tent+flip"), _title("ttc")
    ('TENT + flip', 'TTC')
    """
    name, _, flip = method.partition("+")
    return f"{name.upper()} + {flip}" if flip else name.upper()


def _accuracies(rows: "Sequence[Row]") -> dict[str, dict[str, float]]:
    found = {(row.protocol.corruptions[0], row.protocol.method): 100 * row.figures["accuracy"] for row in rows}
    return {name: {_title(method): found[name, method] for method in _methods()} for name in _corruptions()}


def _means(accuracies: Accuracies) -> dict[str, float]:
    methods = next(iter(accuracies.values()))
    return {method: sum(row[method] for row in accuracies.values()) / len(accuracies) for method in methods}


def _print_summary(rows: "Sequence[Row]", console: "Console") -> None:
    """Print the table and what it shows."""
    accuracies = _accuracies(rows)
    means = _means(accuracies)
    console.print(_table(accuracies))
    gains = [f"{_gain(rows, 'tent')} over TENT", f"{_gain(rows, 'tent+flip')} over TENT + flip"]
    console.print(
        f"\nBatch statistics alone add {decimal(means['NORM'] - means['SOURCE'], 1, sign=True)} points to the source "
        f"model. TTC: {' and '.join(gains)} (points with 95 % interval, {plural(rows[0].protocol.images, 'image')})."
    )
    steps = -(-rows[0].protocol.images // rows[0].protocol.batch_size) - 1
    console.print(
        f"TENT took only {plural(steps, 'step')} and TTC {steps // 2} before the last batch, so learning shows little: "
        "TTC's lead over TENT is mostly that of its second view, the flip, which the controls have too."
        if steps < FEW
        else f"TENT took {plural(steps, 'step')} and TTC {steps // 2} before the last batch."
    )
    console.print(WHY)


def _gain(rows: "Sequence[Row]", other: str) -> str:
    """TTC's gain over another method in points, with its interval."""
    from ttc.bench.comparison import comparisons

    _, gain = comparisons(rows, other, "ttc")
    value, low, high = (decimal(100 * end, 1, sign=True) for end in (gain.estimate, gain.low, gain.high))
    return f"{value} ({low} to {high})"


def _table(accuracies: Accuracies) -> "Table":
    """Our averages and the paper's first, then a row per corruption; a column per method, the best of a row bold."""
    from rich.table import Table

    from ttc.report.formatting import number, readable
    from ttc.studies.paper import average

    means = _means(accuracies)
    table = Table("accuracy %", box=None, pad_edge=False, header_style="bold", show_footer=False)
    for method in means:
        table.add_column(method.replace(" + ", "\n+ "), justify="right", no_wrap=True)
    paper = [average(PAPER_TABLE, method, tuple(accuracies)) for method in means]
    for name, row in {"average": means, **accuracies}.items():
        best = max(row.values())
        cells = [f"[bold]{number(value)}[/bold]" if value == best else number(value) for value in row.values()]
        table.add_row(readable(name), *cells)
        if name == "average":
            table.add_row("paper's average", *map(number, paper), style="dim", end_section=True)
    return table


def _draw(rows: "Sequence[Row]", path: Path) -> str:
    """Write the figure and return where it is; without the libraries, return how to get it."""
    from ttc.data.location import unwritable
    from ttc.files import atomic
    from ttc.report.libraries import install_hint, missing_libraries
    from ttc.report.plots import dot_plot
    from ttc.report.rendering import kind_of, render

    if missing_libraries():
        return f"no figure: it needs libraries of the report extra that are not installed: {install_hint()}"
    found = {(row.protocol.corruptions[0], row.protocol.method): row.correct for row in rows}
    rows_shown = {"average": _corruptions(), **{name: (name,) for name in _corruptions()}}
    shown = {
        title: {_title(method): _estimate([found[name, method] for name in names]) for method in _methods()}
        for title, names in rows_shown.items()
    }
    try:
        with atomic(path) as part:
            part.write_bytes(render(dot_plot(shown, "Accuracy under corruption, severity 5"), kind_of(path)))
    except OSError as error:
        raise unwritable(path.parent, error) from error
    return f"figure: {path}"


def _estimate(correct: "Sequence[NDArray[np.bool_]]") -> tuple[float, float, float]:
    """The accuracy in percent over corruptions of the same images, with the ends of its 95 % interval."""
    import numpy as np

    fractions = 100 * np.mean(correct, axis=0)
    mean, half = float(fractions.mean()), 1.96 * float(fractions.std()) / len(fractions) ** 0.5
    return mean, mean - half, mean + half


def _write(rows: "Sequence[Row]", path: Path) -> None:
    from ttc.bench.export import as_json, records
    from ttc.data.location import unwritable
    from ttc.files import atomic

    try:
        with atomic(path) as part:
            part.write_text(as_json(records(rows)) + "\n", encoding="utf-8")
    except OSError as error:
        raise unwritable(path.parent, error) from error
