import io

from rich.console import Console

from tests.bench.conftest import protocol
from ttc.bench.runner import RunEvent
from ttc.cli.progress import Display


def shown(terminal: bool) -> str:
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=100)
    cells = [protocol("norm"), protocol("tent"), protocol("tent", seed=1)]
    with Display(console, ["norm", "tent", "tent"], preparations=1) as display:
        for event in (RunEvent(None), RunEvent(cells[1], "tent", 0.5), RunEvent(cells[2], "tent", error="it broke")):
            display.show(event)
    return text.getvalue()


def test_a_terminal_gets_a_live_table_with_the_time_left() -> None:
    output = shown(terminal=True)
    assert all(word in output for word in ("mean accuracy so far", "50.00 %", "2/2", "preparing", "cells", "left"))
    assert "[1/3]" not in output


def test_a_file_gets_one_line_per_cell() -> None:
    assert shown(terminal=False).splitlines() == [
        "[1/3] tent, fog 5, per-domain, batch 24, seed 0: 50.00 %",
        "[2/3] tent, fog 5, per-domain, batch 24, seed 1: failed",
    ]
