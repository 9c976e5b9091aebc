"""``ttc demo``: the paper's comparison on the images and the model that come with the package."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ttc.cli.data import DataOption

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console
    from rich.table import Table

    from ttc.bench.protocol import Protocol
    from ttc.bench.store import Row
    from ttc.bench.workload import Workload

FEW = 10  # steps below which adaptation has hardly begun: norm+flip then answers as well as TTC
PAPER_TABLE = "cifar10c-wrn28-10"
WHY = (
    "The paper's numbers are those of a WideResNet-28-10 with 36 million parameters on the published CIFAR-10-C. Here "
    "a ResNet-20 with 0.27 million meets corruptions made anew, on fewer images, so the level is lower; what carries "
    "over is the order of the methods and the distance between them."
)

Accuracies = Mapping[str, Mapping[str, float]]  # {corruption: {METHOD: percent}}


def demo(
    images: Annotated[int, typer.Option(help="Images of each corruption, 1 to 2,000.")] = 500,
    full: Annotated[bool, typer.Option("--full", help="All 2,000 images.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write every number with its protocol to this file.")] = None,
    figure: Annotated[Path, typer.Option(help="Where the figure goes: .png, .svg or .pdf.")] = Path("ttc-demo.png"),
    data: DataOption = None,
) -> None:
    """Compare the paper's seven methods on fifteen corruptions of real CIFAR-10 images, offline.

    Severity 5, batches of 100, a fresh model for each corruption, one pass. After Ctrl-C the same command goes on.
    """
    from rich.console import Console

    from ttc.bench.environment import cores
    from ttc.bench.grid import Grid, cells
    from ttc.bench.workload import Workload
    from ttc.report.rendering import kind_of

    kind_of(figure)  # a wrong name is found before anything runs
    console = Console(highlight=False)
    workload = Workload(root=data)
    wanted = cells(Grid(images=2000 if full else images), workload)
    rows = _measured(wanted, workload, cores(), console)
    _tell(rows, console)
    console.print(f"\n{_draw(rows, figure)}", markup=False, soft_wrap=True)
    if json is not None:
        _write(rows, json)
        console.print(f"every number with its protocol: {json}")
    console.print(
        f"go on: [bold]ttc run --methods norm+flip,tent+flip,ttc --images {wanted[0].images}[/bold] shows how much of "
        "TTC's lead is its second view, [bold]ttc reproduce components[/bold] what each of its parts brings"
    )


def _measured(wanted: "Sequence[Protocol]", workload: "Subject", workers: int, console: "Console") -> "list[Row]":
    """The finished rows of all cells, after running those that the store lacks."""
    from ttc.bench.runner import pending, preparations, run
    from ttc.bench.store import Store
    from ttc.cli.progress import Display
    from ttc.errors import TTCError

    path = workload.cache.parent / "demo.sqlite"
    console.print(
        f"{len({cell.method for cell in wanted})} methods on {len({cell.corruptions for cell in wanted})} corruptions, "
        f"severity 5: {wanted[0].images:,} images each, batches of {wanted[0].batch_size}, a fresh model for each"
    )
    with Store(path) as store:
        left = pending(wanted, store)
        try:
            with Display(console, left, len(preparations(left, workload))) as display:
                for event in run(left, workload, store, workers):
                    display.show(event)
                    if event.error is not None:
                        raise TTCError(f"a cell failed: {event.error}")
        except KeyboardInterrupt:
            console.print(f"\nstopped; what is finished is kept in {path}, and the same command goes on from there")
            raise typer.Exit(130) from None
        hashes = {cell.hash for cell in wanted}
        return [row for row in store.rows() if row.protocol.hash in hashes]


def _accuracies(rows: "Sequence[Row]") -> dict[str, dict[str, float]]:
    from ttc.bench.grid import PAPER
    from ttc.corruptions import CORRUPTIONS

    found = {(row.protocol.corruptions[0], row.protocol.method): 100 * row.figures["accuracy"] for row in rows}
    return {name: {method.upper(): found[name, method] for method in PAPER} for name in CORRUPTIONS}


def _means(accuracies: Accuracies) -> dict[str, float]:
    methods = next(iter(accuracies.values()))
    return {method: sum(row[method] for row in accuracies.values()) / len(accuracies) for method in methods}


def _tell(rows: "Sequence[Row]", console: "Console") -> None:
    """Print the table and what it says."""
    from ttc.bench.comparison import comparisons
    from ttc.report.formatting import number

    accuracies = _accuracies(rows)
    means = _means(accuracies)
    console.print(_table(accuracies))
    _, gain = comparisons(rows, "tent", "ttc")
    console.print(
        f"\nBatch statistics alone bring {number(means['NORM'] - means['SOURCE'], sign=True)} points over the source "
        f"model. TTC is {number(100 * gain.estimate, sign=True)} points from TENT (95 % interval "
        f"{number(100 * gain.low, sign=True)} to {number(100 * gain.high, sign=True)}, {rows[0].protocol.images:,} "
        "images)."
    )
    steps = -(-rows[0].protocol.images // rows[0].protocol.batch_size) - 1
    console.print(
        f"Only {steps} of TENT's steps and {steps // 2} of TTC's came before an answer here, so learning shows little "
        "and TTC's lead is mostly that of answering with the mean over the image and its mirror image."
        if steps < FEW
        else f"{steps} of TENT's steps and {steps // 2} of TTC's came before an answer."
    )
    console.print(WHY)


def _table(accuracies: Accuracies) -> "Table":
    """Our averages and the paper's first, then a row per corruption; a column per method, the best of a row bold."""
    from rich.table import Table

    from ttc.report.formatting import number, readable
    from ttc.studies.paper import average

    means = _means(accuracies)
    table = Table("accuracy %", box=None, pad_edge=False, header_style="bold", show_footer=False)
    for method in means:
        table.add_column(method, justify="right")
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
    from ttc.bench.grid import PAPER
    from ttc.corruptions import CORRUPTIONS
    from ttc.data.location import unwritable
    from ttc.files import atomic
    from ttc.report.libraries import install_hint, missing_libraries
    from ttc.report.plots import dot_plot
    from ttc.report.rendering import kind_of, render

    if missing_libraries():
        return f"no figure: it needs libraries of the report extra that are not installed: {install_hint()}"
    found = {(row.protocol.corruptions[0], row.protocol.method): row.correct for row in rows}
    shown = {"average": {method.upper(): _estimate([found[name, method] for name in CORRUPTIONS]) for method in PAPER}}
    for name in CORRUPTIONS:
        shown[name] = {method.upper(): _estimate([found[name, method]]) for method in PAPER}
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
