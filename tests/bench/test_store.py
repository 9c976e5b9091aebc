from pathlib import Path

import numpy as np
import pytest

from tests.bench.conftest import protocol
from ttc.bench import Cost, Result, Store

HERE = {"torch": "2", "commit": None}


def result(accuracy: float = 0.5, images: int = 11) -> Result:
    random = np.random.default_rng(0)
    return Result(
        accuracy=accuracy,
        nll=1.0,
        ece=0.1,
        per_class=[0.5, None],
        per_domain=[0.5],
        per_pass=[0.5],
        cost=Cost(1.0, 1.0, 5.0, 6.0, 7.0, 8),
        trace=np.array([[11, 0.5, 0.1, np.nan, np.nan, 0.25]], np.float32),
        predictions=random.integers(0, 1000, images).astype(np.uint16),
        correct=random.random(images) < 0.5,
        warnings=("careful",),
        seconds=1.5,
    )


def test_a_row_holds_what_was_recorded(store: Store) -> None:
    cell, found = protocol("ttc"), result()
    store.finish(cell, found, HERE, "ttc(ss=False)")
    (row,) = store.rows()
    assert (row.protocol, row.status, row.error, row.seconds) == (cell, "finished", None, 1.5)
    assert (row.figures["accuracy"], row.figures["per_class"]) == (0.5, [0.5, None])
    assert (row.cost["trainable"], row.warnings, row.environment) == (8, ("careful",), HERE)
    np.testing.assert_array_equal(row.trace, found.trace)
    np.testing.assert_array_equal(row.predictions, found.predictions)
    np.testing.assert_array_equal(row.correct, found.correct)
    assert row.traces["selected"] == [None]
    assert row.traces["loss"] == [0.25]
    assert row.recorded.endswith("+00:00")
    assert row.label == "ttc(ss=False)"


def test_a_finished_cell_stays_and_a_failed_one_is_replaced(store: Store) -> None:
    cell = protocol()
    store.fail(cell, "it broke", HERE, 0.1)
    (row,) = store.rows()
    assert (row.status, row.error, len(row.predictions), len(row.trace)) == ("failed", "it broke", 0, 0)
    assert store.finished() == set()
    store.finish(cell, result(0.5), HERE)
    store.finish(cell, result(0.9), HERE)
    store.fail(cell, "late", HERE, 0.1)
    (row,) = store.rows()
    assert (row.status, row.error, row.figures["accuracy"]) == ("finished", None, 0.5)
    assert store.finished() == {cell.hash}


def test_the_cells_of_another_store_are_added_as_they_were_recorded(store: Store, tmp_path: Path) -> None:
    both, elsewhere, failing = protocol(seed=1), protocol(seed=2), protocol(seed=3)
    with Store(tmp_path / "other.sqlite") as other:
        for key in (both, elsewhere, failing):
            other.finish(key, result(0.75), {"machine": "other"}, "TENT")
        other.fail(protocol(seed=4), "no memory", {}, 1.0)
        store.finish(both, result(0.5), {"machine": "own"})
        store.fail(failing, "no memory", {}, 1.0)
        assert store.add(other) == 2
        assert store.add(other) == 0
        recorded = {row.protocol.hash: row for row in other.rows()}
        found = {row.protocol.seed: row for row in store.rows()}
    assert sorted(found) == [1, 2, 3]
    assert found[1].environment == {"machine": "own"}
    for key in (elsewhere, failing):
        copied, original = found[key.seed], recorded[key.hash]
        assert (copied.recorded, copied.environment, copied.label) == (original.recorded, {"machine": "other"}, "TENT")
        assert np.array_equal(copied.predictions, original.predictions)


def test_two_writers_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with Store(path) as one, Store(path) as other:
        for seed in range(6):
            (one, other)[seed % 2].finish(protocol(seed=seed), result(), HERE)
        one.finish(protocol(seed=9), result(0.1), HERE)
        other.finish(protocol(seed=9), result(0.2), HERE)
        assert one.finished() == other.finished()
        assert [row.figures["accuracy"] for row in one.rows()][-1] == 0.1


DAMAGE = {
    "protocol": "update cells set protocol = '{'",
    "another protocol": "update cells set protocol = replace(protocol, '\"seed\":0', '\"seed\":7')",
    "protocol of other fields": "update cells set protocol = '{\"corruptions\": []}'",
    "figures": "update cells set figures = 'x'",
    "figures without accuracy": "update cells set figures = '{}'",
    "figures that are a list": "update cells set figures = '[]'",
    "environment": "update cells set environment = 'nothing'",
    "trace": "update cells set trace = x'0011'",
    "predictions": "update cells set predictions = x'00'",
    "correct": "update cells set correct = x''",
    "a deep list": f"update cells set warnings = '{'[' * 100_000}'",
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_row_is_named_left_out_and_run_again(store: Store, what: str) -> None:
    cell, other = protocol("ttc"), protocol("tent")
    store.finish(cell, result(), HERE)
    changed = store._connection.execute(DAMAGE[what]).rowcount
    store._connection.commit()
    assert changed == 1
    store.finish(other, result(0.25), HERE)
    with pytest.warns(UserWarning, match=f"the cell {cell.hash[:12]} of the store .* is damaged"):
        assert [row.protocol for row in store.rows()] == [other]
    with pytest.warns(UserWarning, match="is damaged"):
        assert store.finished() == {other.hash}
    store.finish(cell, result(0.75), HERE)
    assert store.finished() == {cell.hash, other.hash}
    assert sorted(row.figures["accuracy"] for row in store.rows()) == [0.25, 0.75]
