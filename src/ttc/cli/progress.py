"""What a run shows while it works: a live table on a terminal, one line per cell elsewhere."""

from collections import defaultdict
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from ttc.bench.runner import RunEvent  # help and listings must not wait for torch


class Display:
    """Shows the events of a run: cells finished per method, their mean accuracy so far, the time left.

    Args:
        console: Where to print.
        methods: The label of the method of each cell that is to run.
        preparations: How many preparations come before them.
    """

    def __init__(self, console: Console, methods: Sequence[str], preparations: int) -> None:
        self.console = console
        self.total = len(methods)
        self.ended = 0
        self.cells: dict[str, int] = defaultdict(int)
        for method in methods:
            self.cells[method] += 1
        self.accuracies: dict[str, list[float]] = defaultdict(list)
        self.failures: dict[str, int] = defaultdict(int)
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
        self.progress = Progress(TextColumn("{task.description:<10}"), *columns, console=console)
        self.preparing = self.progress.add_task("preparing", total=preparations, visible=preparations > 0)
        self.running = self.progress.add_task("cells", total=self.total, start=False)
        self.live = Live(console=console, refresh_per_second=4, get_renderable=self._table, transient=True)

    def __enter__(self) -> "Display":
        if self.console.is_terminal and self.total:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live.is_started:
            self.live.stop()

    def show(self, event: "RunEvent") -> None:
        """Show one event."""
        if event.protocol is None:
            self.progress.advance(self.preparing)
            return
        if not self.ended:
            self.progress.start_task(self.running)
        self.progress.advance(self.running)
        self.ended += 1
        method = event.method
        if event.accuracy is None:
            self.failures[method] += 1
        else:
            self.accuracies[method].append(event.accuracy)
        if not self.live.is_started:
            result = "failed" if event.accuracy is None else f"{100 * event.accuracy:.2f} %"
            self.console.print(f"[{self.ended}/{self.total}] {event.protocol.describe(method)}: {result}", markup=False)

    def _table(self) -> Group:
        table = Table("method", "cells", "mean accuracy so far", "failed", box=None, pad_edge=False)
        for method, total in self.cells.items():
            found = self.accuracies[method]
            mean = f"{100 * sum(found) / len(found):.2f} %" if found else ""
            failed = str(self.failures[method] or "")
            table.add_row(method, f"{len(found) + self.failures[method]}/{total}", mean, failed)
        return Group(table, self.progress)
