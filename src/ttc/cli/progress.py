"""What ``ttc run`` shows while it works: a live table on a terminal, a line a cell elsewhere."""

import sys
from collections import defaultdict
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from ttc.bench.comparison import Summary
from ttc.bench.protocol import Protocol

if TYPE_CHECKING:
    from ttc.bench.runner import Event  # a summary of results must not wait for torch


def wide_console() -> Console:
    """A console as wide as the terminal; 200 columns where there is none, so that tables in files keep their cells."""
    return Console(soft_wrap=True, highlight=False, width=None if sys.stdout.isatty() else 200)


class Display:
    """Follows the events of a run: cells finished of each method, their mean accuracy so far, time left."""

    def __init__(self, console: Console, left: Sequence[Protocol], preparations: int) -> None:
        self.console = console
        self.total = len(left)
        self.ended = 0
        self.cells: dict[str, int] = defaultdict(int)
        for cell in left:
            self.cells[cell.method] += 1
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

    def show(self, event: "Event") -> None:
        """Take in one event."""
        if event.protocol is None:
            self.progress.advance(self.preparing)
            return
        if not self.ended:
            self.progress.start_task(self.running)
        self.progress.advance(self.running)
        self.ended += 1
        method = event.protocol.method
        if event.accuracy is None:
            self.failures[method] += 1
        else:
            self.accuracies[method].append(event.accuracy)
        if not self.live.is_started:
            found = "failed" if event.accuracy is None else f"{100 * event.accuracy:.2f} %"
            self.console.print(f"[{self.ended}/{self.total}] {event.protocol.label}: {found}", markup=False)

    def _table(self) -> Group:
        table = Table("method", "cells", "mean accuracy so far", "failed", box=None, pad_edge=False)
        for method, total in self.cells.items():
            found = self.accuracies[method]
            mean = f"{100 * sum(found) / len(found):.2f} %" if found else ""
            failed = str(self.failures[method] or "")
            table.add_row(method, f"{len(found) + self.failures[method]}/{total}", mean, failed)
        return Group(table, self.progress)


def summary_table(found: Sequence[Summary]) -> Table:
    """Mean over corruptions, mean ± deviation over seeds, and the cost, one line a method and setting."""
    table = Table(
        "method", "setting", "corruptions", "seeds", "accuracy %", "error %", "NLL", "ECE %", "passes", "ms/batch",
        box=None, pad_edge=False,
    )  # fmt: skip
    for one in found:
        setting = one.setting
        table.add_row(
            one.method,
            f"{setting['scenario']}, severity {setting['severity']}, batch {setting['batch_size']}",
            str(one.corruptions),
            str(one.seeds),
            _percent(one.accuracy.mean, one.accuracy.std, one.accuracy.runs),
            _percent(one.error.mean, one.error.std, one.error.runs),
            f"{one.nll:.3f}",
            _percent(one.ece.mean, one.ece.std, one.ece.runs),
            f"{one.forwards:.3g}/{one.backwards:.3g}",
            f"{one.ms_per_batch:.1f}",
        )
    return table


def duration(seconds: float) -> str:
    """A length of time in words.

    >>> duration(5), duration(150), duration(9000)
    ('5 s', '2.5 min', '2.5 h')
    """
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def _percent(mean: float, std: float, runs: int) -> str:
    return f"{100 * mean:.2f}" if runs < 2 else f"{100 * mean:.2f} ± {100 * std:.2f}"
