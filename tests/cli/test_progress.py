import io
import math

from rich.console import Console

from tests.bench.conftest import protocol
from ttc.bench.comparison import Summary
from ttc.bench.runner import Event
from ttc.bench.metrics import MeanStd
from ttc.cli.progress import Display, summary_table


def shown(terminal: bool) -> str:
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=100)
    cells = [protocol("norm"), protocol("tent"), protocol("tent", seed=1)]
    with Display(console, cells, preparations=1) as display:
        for event in (Event(None), Event(cells[1], accuracy=0.5), Event(cells[2], error="it broke")):
            display.show(event)
    return text.getvalue()


def test_a_terminal_gets_a_live_table_with_the_time_left() -> None:
    output = shown(terminal=True)
    assert all(word in output for word in ("mean accuracy so far", "50.00 %", "2/2", "preparing", "cells", "left"))
    assert "[1/3]" not in output


def test_a_file_gets_a_line_a_cell() -> None:
    assert shown(terminal=False).splitlines() == [
        "[1/3] tent, fog 5, per-domain, batch 24, seed 0: 50.00 %",
        "[2/3] tent, fog 5, per-domain, batch 24, seed 1: failed",
    ]


def test_a_summary_shows_deviations_where_there_are_some() -> None:
    setting = {"scenario": "per-domain", "severity": 5, "batch_size": 100}
    one, several = MeanStd(0.5, math.nan, 1), MeanStd(0.5, 0.01, 3)
    text = io.StringIO()
    table = summary_table([Summary("tent", setting, 15, 3, several, several, one, one, 7.5, 1.0, 1.0)])
    Console(file=text, width=200).print(table)
    assert "50.00 ± 1.00" in text.getvalue()
    assert "50.00  " in text.getvalue()
    assert "0.500  " in text.getvalue()
