import dataclasses
from pathlib import Path

import pytest

from tests.bench.conftest import make_row, workload
from ttc.bench import Protocol, Spec
from ttc.bench.estimate import estimate_seconds
from ttc.bench.grid import Grid, cells


def test_the_estimate_grows_with_the_work(place: Path) -> None:
    def estimate(grid: Grid, workers: int = 1) -> float:
        return estimate_seconds(cells(grid, workload()), workload(), workers)

    small = Grid((Spec("ttc"),), ("fog",), images=12, batch_sizes=(4,))
    large = dataclasses.replace(small, scenarios=(Spec.read("repeated(epochs=500)"),))
    assert 0 < estimate(small) < estimate(large)
    assert estimate_seconds([], workload(), 1) == 0
    cell: list[Protocol] = cells(Grid((Spec("tent"),), ("clean",), images=12), workload("small_nets:plain"))
    assert estimate_seconds(cell, workload("small_nets:plain"), 1) == 0  # it cannot run at all


def test_finished_cells_tell_how_long_others_take(place: Path) -> None:
    grid = Grid((Spec("norm"),), ("clean",), images=12, batch_sizes=(4,))
    (cell,) = cells(grid, workload())
    rows = [make_row(protocol=cell, seconds=seconds) for seconds in (20.0, 24.0, 90.0)]
    failed = make_row(protocol=cell, seconds=1e6, status="failed")
    more = cells(dataclasses.replace(grid, seeds=(1, 2, 3), images=6), workload())
    assert estimate_seconds(more, workload(), 1, [*rows, failed]) == pytest.approx(3 * 24 / 2)
    others = cells(dataclasses.replace(grid, batch_sizes=(6,)), workload())
    assert estimate_seconds(others, workload(), 1, rows) < 20
