import dataclasses
from pathlib import Path

from tests.bench.conftest import workload
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
