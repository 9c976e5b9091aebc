"""What ``ttc adapt`` shows: its progress, the summary, and the files it skipped."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ttc.cli.wording import print_line

if TYPE_CHECKING:
    from ttc.core import Adapter
    from ttc.deploy import AdaptationJob

TITLE = 19  # columns of the titles in the summary
SHOWN_CLASSES = 10  # of those that were predicted; the summary file has all
SHOWN_FILES = 20  # of those that were skipped; the summary has all


def run_with_progress(job: "AdaptationJob", adapter: "Adapter") -> dict[str, Any]:
    """Run the job with a progress bar; after Ctrl-C, or when another process was lost, say how to resume."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from ttc.core import LostProcessError
    from ttc.errors import TTCError

    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}, left"), TimeRemainingColumn())
    start, begun = job.done, time.monotonic()
    first = adapter.processes.rank == 0
    if start and first:
        typer.echo(f"resuming after {start:,} of {job.total:,} images", err=True)
    with Progress(
        TextColumn("adapting"), *columns, console=console, disable=not (first and console.is_terminal)
    ) as progress:
        task = progress.add_task("", total=job.total, completed=start, rate="")

        def show(done: int) -> None:
            rate = (done - start) / max(time.monotonic() - begun, 1e-9)
            progress.update(task, completed=done, rate=f"{rate:,.0f} images/s")

        try:
            return job.run(adapter, show)
        except KeyboardInterrupt:
            progress.stop()
            typer.echo(f"stopped: {job.done:,} of {job.total:,} images are saved in {job.folder.path}", err=True)
            typer.echo("to resume, run the same command again", err=True)
            raise typer.Exit(130) from None
        except LostProcessError as error:
            raise TTCError(f"{error}; to resume, run the same command again") from error


def print_summary(summary: Mapping[str, Any], folder: Path, table: str) -> None:
    """Print a summary, and write Parquet where it was asked for."""
    from ttc.deploy.job_results import write_parquet

    if table == "parquet":
        write_parquet(folder / "predictions.csv")
    for name, value in summary.items():
        if name != "skipped":
            print_line(name.replace("_", " "), _format(value), TITLE)
    print_line("results in", str(folder), TITLE)


def report_skipped(skipped: Mapping[str, str], folder: Path) -> None:
    """Name the files that could not be read; the exit code says that there were some."""
    for path, reason in list(skipped.items())[:SHOWN_FILES]:
        typer.echo(f"ttc: skipped {path}: {reason}", err=True)
    if len(skipped) > SHOWN_FILES:
        typer.echo(f"ttc: and {len(skipped) - SHOWN_FILES:,} more, listed in {folder / 'summary.json'}", err=True)
    if skipped:
        raise typer.Exit(1)


def _format(value: object) -> str:
    if not isinstance(value, dict):
        return str(value)
    shown = [f"{name}: {count:,}" for name, count in list(value.items())[:SHOWN_CLASSES]]
    return ", ".join(shown + ([f"{len(value) - SHOWN_CLASSES:,} more"] if len(value) > SHOWN_CLASSES else []))
