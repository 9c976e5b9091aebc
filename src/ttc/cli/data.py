"""``ttc data``: list, fetch and verify datasets and public checkpoints."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ttc.errors import TTCError

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(help="List, fetch and verify datasets and public checkpoints.", no_args_is_help=True)
DataOption = Annotated[
    Path | None,
    typer.Option("--data", help="The data directory.", show_default="TTC_DATA, else the platform's cache directory"),
]
MARKS = {"present": "[green]present[/]", "missing": "[dim]missing[/]", "damaged": "[red]damaged[/]"}


@app.command("list")
def list_sources(data: DataOption = None) -> None:
    """List all datasets and checkpoints that can be downloaded, and their state on this machine."""
    from rich.console import Console
    from rich.table import Table

    from ttc.data.catalogue import SOURCES
    from ttc.data.fetching import source_status
    from ttc.data.location import data_root

    root = data_root(data)
    table = Table("name", "state", "download", "content", box=None, pad_edge=False)
    for name, source in SOURCES.items():
        size = _size(source.size or sum(part.size for part in source.parts)) if source.file else "manual"
        what = f"{source.title}: {source.note}" if source.note else source.title
        table.add_row(name, MARKS[source_status(name, root).status], size, what)
    console = Console()
    console.print(table)
    note = f"\ndata directory: {root}\nto download: ttc data fetch NAME (imagenet-c stands for its four main parts)"
    console.print(note, soft_wrap=True, markup=False)


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e7 else f"{count / 1e6:.1f} MB"


@app.command()
def fetch(
    names: Annotated[list[str], typer.Argument(help="Names shown by ttc data list.")],
    data: DataOption = None,
    keep_archive: Annotated[bool, typer.Option(help="Keep archives after unpacking.")] = False,
) -> None:
    """Download, verify and unpack datasets and checkpoints; run it again after an interruption to resume."""
    from rich.console import Console

    from ttc.data.fetching import resolve_names, source_status
    from ttc.data.location import data_root

    root = data_root(data)
    console = Console(markup=False, soft_wrap=True)
    wanted = list(dict.fromkeys(entry for name in names for entry in resolve_names(name)))
    try:
        for name in wanted:
            before = source_status(name, root).status
            detail = _fetch_with_bar(name, root, keep_archive, console)
            verb = "is already" if before == "present" else "is now"
            console.print(f"{name} {verb} in {root} ({detail})")
    except KeyboardInterrupt:
        console.print(f"interrupted; to resume: ttc data fetch {' '.join(names)} --data {root}")
        raise typer.Exit(130) from None


def _fetch_with_bar(name: str, root: Path, keep_archive: bool, console: "Console") -> str:
    """Fetch one source with a progress bar that restarts at each step; return the detail of its status."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from ttc.data import fetching

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(TextColumn("{task.description}"), *columns, console=console, transient=True) as progress:
        task, doing = progress.add_task(name), ""

        def step(what: str, done: int, total: int | None) -> None:
            nonlocal doing
            if what.split()[0] != doing:
                doing = what.split()[0]
                progress.reset(task)
            progress.update(task, description=what, completed=done, total=total)

        return fetching.fetch(name, root, step, keep_archive).detail


@app.command()
def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Names shown by ttc data list.", show_default="everything in the data directory"),
    ] = None,
    data: DataOption = None,
) -> None:
    """Verify checksums and numbers of images; the exit code is 1 if anything is damaged or missing."""
    from rich.console import Console

    from ttc.data.catalogue import SOURCES
    from ttc.data.fetching import resolve_names, source_status
    from ttc.data.location import data_root

    root = data_root(data)
    console = Console()
    asked = [entry for name in names or [] for entry in resolve_names(name)]
    wanted = asked or [name for name in SOURCES if source_status(name, root).status != "missing"]
    if not wanted:
        raise TTCError(f"there is nothing to verify in {root}: ttc data list shows what can be downloaded")
    complete = True
    for name in wanted:
        with console.status(f"verifying {name}"):
            found = source_status(name, root, thorough=True)
        complete &= found.status == "present"
        repair = "" if found.status == "present" else f"; to repair: ttc data fetch {name}"
        console.print(f"{name}: {MARKS[found.status]}", end=" ")
        console.print(f"({found.detail}{repair})", soft_wrap=True, markup=False)
    if not complete:
        raise typer.Exit(1)
