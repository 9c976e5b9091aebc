import dataclasses
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.bench.conftest import made_place, workload
from ttc.bench import Row, Spec, Store, source_cache
from ttc.bench.grid import Grid, cells
from ttc.bench.runner import RunEvent, evaluate_cell, pending, preparations, run
from ttc.core import Adapter
from ttc.data import corrupted_images
from ttc.errors import TTCError
from ttc.methods import METHODS, Method

GRID = Grid(
    methods=(Spec("source"), Spec("norm"), Spec("ttc"), Spec.read("own_methods:failing")),
    corruptions=("fog", "contrast"),
    images=12,
    batch_sizes=(4,),
    scenarios=(Spec("per-domain"), Spec("mixed")),
)


def recorded(store: Store) -> dict[str, Row]:
    return {row.protocol.hash: row for row in store.rows()}


def same(one: Row, other: Row) -> bool:
    return (
        (one.protocol, one.status, one.figures, one.error) == (other.protocol, other.status, other.figures, other.error)
        and np.array_equal(one.trace, other.trace, equal_nan=True)
        and np.array_equal(one.predictions, other.predictions)
        and np.array_equal(one.correct, other.correct)
    )


def test_a_grid_alone_and_in_parallel_is_equal_to_the_bit(place: Path) -> None:
    own = Spec.read("own_methods:sharp(temperature=0.5)")
    wanted = cells(dataclasses.replace(GRID, methods=(*GRID.methods, own)), workload())
    with Store(Path("alone.sqlite")) as alone, Store(Path("parallel.sqlite")) as parallel:
        first = list(run(wanted, workload(), alone, workers=1))
        moved = workload(root=place / "elsewhere")  # with a cache of its own
        second = list(run(wanted, moved, parallel, workers=2))
        one, other = recorded(alone), recorded(parallel)
    assert len(one) == len(wanted) == 15
    assert sorted(one) == sorted(other)
    assert {row.label for row in other.values()} == {"source", "norm", "ttc", "own_methods:failing", str(own)}
    assert all(same(one[key], other[key]) for key in one)
    assert {row.environment["workers"] for row in one.values()} == {1}
    assert {row.environment["workers"] for row in other.values()} == {2}
    failed = {row.protocol.method for row in one.values() if row.status == "failed"}
    assert failed == {"own_methods:failing"}  # the rest of the grid ran
    errors = {event.error for event in first if event.error}
    assert errors == {event.error for event in second if event.error}
    assert all("not finite" in str(error) for error in errors)


def test_finished_cells_are_not_run_again_and_failed_ones_are(place: Path) -> None:
    wanted = cells(GRID, workload())
    with Store(Path("a.sqlite")) as store:
        events = run(wanted, workload(), store)
        for _ in range(6):
            next(events)
        events.close()  # as Ctrl-C does
        before = recorded(store)
        left = pending(wanted, store)
        assert [row.status for row in before.values()].count("finished") == 3 == len(wanted) - len(left)
        list(run(left, workload(), store))
        failed = pending(wanted, store)
        assert {cell.method for cell in failed} == {"own_methods:failing"}
        after = recorded(store)
        assert all(after[key].recorded == row.recorded for key, row in before.items() if row.status == "finished")
        again = list(run(failed, workload(), store))
        assert [event.error is not None for event in again if event.protocol] == [True] * 3
        assert list(run([], workload(), store)) == []


def test_an_unexpected_error_is_recorded_with_its_kind(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(model: object) -> Adapter:
        raise KeyError("gone")

    monkeypatch.setitem(METHODS, "broken", Method(name="broken", build=broken))
    wanted = cells(Grid((Spec("broken"), Spec("norm")), ("clean",), images=12), workload())
    with Store(Path("a.sqlite")) as store:
        list(run(wanted, workload(), store))
        assert {row.protocol.method: row.error for row in store.rows()} == {"broken": "KeyError: 'gone'", "norm": None}


def test_shared_work_is_prepared_once(place: Path) -> None:
    wanted = cells(dataclasses.replace(GRID, seeds=(0, 1)), workload())
    assert len(preparations(wanted, workload())) == 2  # two corruptions, however many cells
    with Store(Path("a.sqlite")) as store:
        events = list(run(wanted, workload(), store))
    assert events[:2] == [RunEvent(None)] * 2
    names = sorted(path.name.partition("-")[0] for path in workload().cache.iterdir())
    assert names == ["contrast", "fog", "source", "source"]
    clean = cells(Grid((Spec("norm"),), ("clean",), images=12), workload())
    assert preparations(clean, workload()) == []


def test_a_cache_that_cannot_be_written_stops_the_run_with_a_sentence(place: Path) -> None:
    (place / "file").write_text("")
    blocked = workload(root=place / "data")
    (place / "data").mkdir()
    (place / "data" / "cache").write_text("")
    wanted = cells(GRID, blocked)
    with Store(Path("a.sqlite")) as store, pytest.raises(TTCError, match=r"cannot write to .*cache"):
        list(run(wanted, blocked, store))


def test_data_that_changed_meanwhile_is_noticed(place: Path) -> None:
    (cell,) = cells(Grid((Spec("norm"),), ("clean",), images=12), workload())
    with pytest.raises(TTCError, match="the images of clean 0 changed while the grid ran"):
        evaluate_cell(workload(), dataclasses.replace(cell, data_checksum="other"))


def test_a_folder_that_changes_during_a_run_fails_its_cells_and_keeps_the_finished_ones(place: Path) -> None:
    grid = Grid((Spec("norm"), Spec("tent")), ("clean",), images=12, batch_sizes=(4,))
    found = workload()
    wanted = cells(grid, found)
    with Store(Path("a.sqlite")) as store:
        events = run(wanted, found, store)
        assert next(event for event in events if event.protocol).error is None
        Image.new("RGB", (16, 16)).save(place / "photos" / "blue" / "00.png")
        (failed,) = (event for event in events if event.protocol)
        assert "00.png changed after photos was opened" in str(failed.error)
        assert "finished results stay valid, run the command again" in str(failed.error)
        before = recorded(store)
        changed = cells(grid, workload())
        assert not {cell.hash for cell in changed} & set(before)  # other images, other cells
        assert all(event.error is None for event in run(changed, workload(), store))
        after = recorded(store)
    assert same(after[wanted[0].hash], before[wanted[0].hash])


def test_images_of_every_kind_and_size_are_one_stream(place: Path) -> None:
    for number, (mode, size) in enumerate([("L", (40, 30)), ("CMYK", (17, 90)), ("RGB", (200, 20)), ("1", (16, 16))]):
        ending = "jpg" if mode in ("L", "CMYK") else "png"
        Image.new(mode, size, 1 if mode != "CMYK" else (0, 90, 30, 10)).save(place / f"photos/red/x{number}.{ending}")
    found = workload(dataset="imagefolder:photos@16")
    with Store(Path("a.sqlite")) as store:
        wanted = cells(Grid((Spec("norm"),), ("fog",), batch_sizes=(8,)), found)
        (done,) = (event for event in run(wanted, found, store) if event.protocol)
    assert done.error is None
    assert wanted[0].images == 40
    unfitted = workload()
    with Store(Path("b.sqlite")) as store, pytest.raises(TTCError, match=r"pixels, .*: set a size.*PATH@224"):
        list(run(cells(Grid((Spec("norm"),), ("fog",)), unfitted), unfitted, store))


def test_a_stream_holds_a_few_batches_of_pixels(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "large").mkdir()
    made_place(place / "large", per_class=100)
    monkeypatch.setattr(corrupted_images, "CHUNK", 20)
    monkeypatch.setattr(source_cache, "BATCH", 20)
    found = workload(dataset="imagefolder:large/photos@64")
    whole = 300 * 64 * 64 * 3
    grid = Grid((Spec("source"), Spec("norm")), ("contrast",), batch_sizes=(20,))
    with Store(Path("a.sqlite")) as store:
        list(run(cells(dataclasses.replace(grid, images=40), found), found, store))  # imports and layers, once
        wanted = cells(grid, found)
        tracemalloc.start()  # of NumPy and Python; torch has one batch
        try:
            assert all(event.error is None for event in run(wanted, found, store))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < whole / 3, f"{peak:,} bytes were held of {whole:,}"


def test_a_method_that_does_not_fit_the_model_fails_in_its_cell(place: Path) -> None:
    flat = workload("small_nets:plain")
    wanted = cells(Grid((Spec("tent"), Spec("source")), ("clean",), images=12), flat)
    with Store(Path("a.sqlite")) as store:
        events = {event.protocol.method: event for event in run(wanted, flat, store) if event.protocol}
    assert "no normalization layer" in str(events["tent"].error)
    assert events["source"].accuracy is not None


def test_an_own_builder_that_changed_meanwhile_is_noticed(place: Path) -> None:
    (cell,) = cells(Grid((Spec("own_methods:sharp"),), ("clean",), images=12), workload())
    (place / "own_methods.py").write_text("")
    with pytest.raises(TTCError, match="the source file of own_methods:sharp changed while the grid ran"):
        evaluate_cell(workload(), cell)
