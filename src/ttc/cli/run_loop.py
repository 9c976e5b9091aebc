"""The one run loop of ``ttc run``, ``ttc reproduce`` and ``ttc demo``: run what is missing, show it, resume later."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ttc.cli.wording import duration, plural

if TYPE_CHECKING:
    from rich.console import Console

    from ttc.bench.protocol import Protocol
    from ttc.bench.ray_executor import RayExecutor
    from ttc.bench.store import Row
    from ttc.bench.workload import ResolvedWorkload

SHOWN_FAILURES = 5  # more of them say the same


@dataclass(frozen=True)
class CompletedRun:
    """The rows of all cells that were asked for, in that order, and those that failed just now with their errors."""

    rows: "list[Row]"
    started: int
    failures: list[str]


def run_cells(
    cells: "Sequence[Protocol]",
    workload: "ResolvedWorkload",
    store: Path,
    workers: int,
    console: "Console",
    executor: "RayExecutor | None" = None,
) -> CompletedRun:
    """Run the cells that the store does not have, with a live display.

    Args:
        cells: All cells that are wanted.
        workload: The data and model they were planned for.
        store: The file of results.
        workers: The number of processes.
        console: Where to print.
        executor: A cluster to run on, instead of processes of this machine.

    Raises:
        typer.Exit: With code 130 after Ctrl-C; what is finished is in the store.
    """
    from ttc.bench.allocator import reuse_memory
    from ttc.bench.method_specs import method_label
    from ttc.bench.runner import pending, preparations, run
    from ttc.bench.store import Store
    from ttc.cli.progress import Display

    reuse_memory()
    failures: list[str] = []
    finished = 0
    with Store(store) as opened:
        left = pending(cells, opened)
        before = f", {len(cells) - len(left):,} finished before" if len(left) < len(cells) else ""
        console.print(f"{plural(len(cells), 'cell')}{before}; results go to {store}", markup=False)
        try:
            with Display(console, [method_label(cell) for cell in left], len(preparations(left, workload))) as display:
                for event in run(left, workload, opened, workers, executor):
                    if event.protocol is not None and event.error is not None:
                        failures.append(f"{event.protocol.describe(event.method)}: {event.error}")
                    elif event.protocol is not None:
                        finished += 1  # before it is shown, which Ctrl-C may interrupt
                    display.show(event)
        except KeyboardInterrupt:
            console.print(
                f"\nstopped: {finished:,} of {plural(len(left), 'cell')} finished and stored in {store}; "
                "run the same command again to resume",
                markup=False,
            )
            raise typer.Exit(130) from None
        order = {cell.hash: index for index, cell in enumerate(cells)}
        rows = [row for row in opened.rows() if row.protocol.hash in order]
    return CompletedRun(sorted(rows, key=lambda row: order[row.protocol.hash]), len(left), failures)


def exit_if_failed(done: CompletedRun, store: Path, console: "Console") -> None:
    """Print why cells failed and how to try them again.

    Raises:
        typer.Exit: With code 1 if a cell failed.
    """
    if not done.failures:
        return
    for failure in done.failures[:SHOWN_FAILURES]:
        console.print(f"failed: {failure}", markup=False)
    rest = len(done.failures) - SHOWN_FAILURES
    if rest > 0:
        console.print(f"and {rest:,} more: ttc results --store {store} --failed", markup=False)
    console.print(
        f"{len(done.failures):,} of {plural(done.started, 'cell')} failed; run the same command again to retry"
    )
    raise typer.Exit(1)


def print_note_on_single_batches(cells: "Sequence[Protocol]", console: "Console") -> None:
    """Say so if cells have one batch: a method learns from a batch after predicting it, so nothing can be learned."""
    single = [cell for cell in cells if len(cell.corruptions) == 1 and cell.images <= cell.batch_size]
    single = [cell for cell in single if not cell.scenario.startswith(("gradual", "repeated"))]
    if single:
        which = (
            "every cell has" if len(single) == len(cells) else f"{len(single):,} of {plural(len(cells), 'cell')} have"
        )
        images, batch = single[0].images, single[0].batch_size
        console.print(
            f"note: {which} a single batch ({plural(images, 'image')}, batch size {batch}): nothing can be learned "
            "from it before it is predicted, so only batch statistics and second views show; use more images",
            markup=False,
        )


def missing_cells(cells: "Sequence[Protocol]", store: Path) -> "list[Protocol]":
    """Return the cells that are not finished in the store, without creating it."""
    from ttc.bench.runner import pending
    from ttc.bench.store import Store

    if not store.exists():
        return list(cells)
    with Store(store, readonly=True) as opened:
        return pending(cells, opened)


def describe_dry_run(
    cells: "Sequence[Protocol]",
    left: "Sequence[Protocol]",
    workload: "ResolvedWorkload",
    workers: int,
    store: Path | None = None,
) -> str:
    """Say how many cells would run, for about how long, and how much work that is.

    Args:
        cells: All cells that are wanted.
        left: Those that are not finished.
        workload: The data and the model.
        workers: How many cells would run at a time.
        store: The file of results, whose finished cells tell how long others take.
    """
    from ttc.bench.estimate import estimate_seconds
    from ttc.bench.store import Store

    if not left:
        return f"{plural(len(cells), 'cell')}, all finished; nothing was run or written"
    measured: list[Row] = []
    if store is not None and store.exists():
        with Store(store, readonly=True) as opened:
            measured = list(opened.rows())
    processes = min(workers, len(left))
    work = estimate_seconds(left, workload, 1, measured)
    return (
        f"{plural(len(cells), 'cell')}, {len(left):,} to run: about {duration(work / processes)} with "
        f"{plural(processes, 'worker')} ({duration(work)} of work); nothing was run or written"
    )
