import io
import warnings
from pathlib import Path

import pytest
import typer
from rich.console import Console

from tests.bench.conftest import place as place  # the fixture
from tests.bench.conftest import workload
from ttc.bench import Spec
from ttc.bench.grid import Grid, cells
from ttc.cli.run_loop import (
    SHOWN_FAILURES,
    describe_dry_run,
    exit_if_failed,
    missing_cells,
    print_note_on_single_batches,
    run_cells,
)

STORE = Path("a.sqlite")


def console() -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, width=200), text


def grid(*methods: str, **changes: object) -> Grid:
    return Grid(tuple(map(Spec.read, methods)), ("fog", "clean"), images=12, **changes)  # type: ignore[arg-type]


def test_rows_come_in_the_order_of_the_cells(place: Path) -> None:
    resolved = workload()
    wanted = cells(grid("norm", "tent"), resolved)
    out, text = console()
    assert len(run_cells(wanted[2:], resolved, STORE, 1, out).rows) == 2
    done = run_cells(wanted, resolved, STORE, 1, out)
    assert [row.protocol.hash for row in done.rows] == [cell.hash for cell in wanted]
    assert (done.started, done.failures) == (2, [])
    assert "4 cells, 2 finished before; results go to a.sqlite" in text.getvalue()
    exit_if_failed(done, STORE, out)


def test_a_single_batch_is_said_to_teach_nothing(place: Path) -> None:
    resolved = workload()
    out, text = console()
    print_note_on_single_batches(cells(grid("tent", batch_sizes=(4,)), resolved), out)
    print_note_on_single_batches(cells(grid("tent", scenarios=(Spec("continual"),)), resolved), out)
    assert text.getvalue() == ""
    print_note_on_single_batches(cells(grid("tent", batch_sizes=(4, 12)), resolved), out)
    assert "2 of 4 cells have a single batch (12 images, batch size 12): nothing can be learned" in text.getvalue()


def test_failures_are_printed_and_end_with_code_one(place: Path) -> None:
    resolved = workload()
    seeds = tuple(range(SHOWN_FAILURES))
    out, text = console()
    done = run_cells(
        cells(grid("own_methods:failing", batch_sizes=(4,), seeds=seeds), resolved), resolved, STORE, 1, out
    )
    with pytest.raises(typer.Exit) as stop:
        exit_if_failed(done, STORE, out)
    assert stop.value.exit_code == 1
    assert text.getvalue().count("failed: own_methods:failing, ") == SHOWN_FAILURES
    assert f"and {SHOWN_FAILURES} more: ttc results --store a.sqlite --failed" in text.getvalue()
    assert "10 of 10 cells failed; run the same command again to retry" in text.getvalue()


def test_a_stop_says_how_to_resume(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ttc.bench.runner.run", stopped)
    out, text = console()
    resolved = workload()
    wanted = cells(grid("norm"), resolved)
    with pytest.raises(typer.Exit) as stop:
        run_cells(wanted, resolved, STORE, 1, out)
    assert stop.value.exit_code == 130
    assert (
        "stopped: 0 of 2 cells finished and stored in a.sqlite; run the same command again to resume" in text.getvalue()
    )


def test_a_dry_run_creates_nothing_and_warns_of_nothing(place: Path) -> None:
    resolved = workload()
    wanted = cells(grid("norm", batch_sizes=(1,)), resolved)
    assert missing_cells(wanted, STORE) == wanted
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert describe_dry_run(wanted, wanted, resolved, 8).startswith("2 cells, 2 to run: about 1 s with 2 workers (")
    assert not STORE.exists()
    assert not resolved.cache.exists()
