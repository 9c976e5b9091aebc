import dataclasses
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.bench.conftest import protocol
from ttc.bench import Cost, Result, Store
from ttc.bench.store import MAGIC
from ttc.errors import TTCError

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


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "new" / "results.sqlite") as opened:
        yield opened


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


def test_the_file_is_in_write_ahead_mode_and_merged_on_closing(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with Store(path) as opened:
        opened.finish(protocol(), result(), HERE)
        assert (tmp_path / "a.sqlite-wal").exists()
    assert list(tmp_path.iterdir()) == [path]
    with Store(path, readonly=True) as opened:
        assert len(list(opened.rows())) == 1


def test_two_writers_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with Store(path) as one, Store(path) as other:
        for seed in range(6):
            (one, other)[seed % 2].finish(protocol(seed=seed), result(), HERE)
        one.finish(protocol(seed=9), result(0.1), HERE)
        other.finish(protocol(seed=9), result(0.2), HERE)
        assert one.finished() == other.finished()
        assert [row.figures["accuracy"] for row in one.rows()][-1] == 0.1


def test_a_locked_store(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with Store(path, timeout=0.05) as store:
        blocker = sqlite3.connect(path)
        blocker.execute("begin immediate")
        with pytest.raises(TTCError, match="is locked by another program; wait for it or stop it"):
            store.finish(protocol(), result(), HERE)
        with pytest.raises(TTCError, match="is locked"):
            Store(path, timeout=0.05)
        blocker.rollback()
        blocker.close()
        store.finish(protocol(), result(), HERE)
        assert len(store.finished()) == 1


def test_a_read_only_store(store: Store) -> None:
    store._connection.execute("pragma query_only = on")
    with pytest.raises(TTCError, match="is read-only; make it writable or choose another --store"):
        store.finish(protocol(), result(), HERE)


def test_reading_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    Store(path).close()
    with Store(path, readonly=True) as store, pytest.raises(TTCError, match="is read-only"):
        store.finish(protocol(), result(), HERE)


def test_a_full_disk_loses_nothing(store: Store) -> None:
    store.finish(protocol(), result(), HERE)
    (pages,) = store._connection.execute("pragma page_count").fetchone()
    store._connection.execute(f"pragma max_page_count = {pages}")
    big = dataclasses.replace(result(), trace=np.zeros((9000, 6), np.float32))
    with pytest.raises(TTCError, match="the disk is full; free some space and run the same command again"):
        store.finish(protocol(seed=1), big, HERE)
    assert store.finished() == {protocol().hash}
    store._connection.execute("pragma max_page_count = 100000")
    store.finish(protocol(seed=1), big, HERE)
    assert len(store.finished()) == 2


def test_a_store_of_a_newer_version(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    Store(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("pragma user_version = 99")
    connection.close()
    for readonly in (False, True):
        with pytest.raises(TTCError, match=r"written by a newer version of ttc \(schema 99, this one reads up to 2\)"):
            Store(path, readonly=readonly)


def test_files_that_are_no_store(tmp_path: Path) -> None:
    with pytest.raises(TTCError, match=r"there is no store .*absent.sqlite; create one with: ttc run --store"):
        Store(tmp_path / "absent.sqlite", readonly=True)
    assert not (tmp_path / "absent.sqlite").exists()
    text = tmp_path / "text.sqlite"
    text.write_text("accuracy,0.9\n" * 100)
    other = tmp_path / "other.sqlite"
    connection = sqlite3.connect(other)
    connection.execute("create table photographs (name text)")
    connection.close()
    for readonly in (False, True):
        with pytest.raises(TTCError, match="is not a store of results or is damaged"):
            Store(text, readonly=readonly)
        with pytest.raises(TTCError, match="is a SQLite file but not a store of results"):
            Store(other, readonly=readonly)
    with pytest.raises(TTCError, match="cannot be opened or created; check its directory"):
        Store(tmp_path)
    with pytest.raises(TTCError, match="cannot create the store"):
        Store(text / "results.sqlite")


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "empty.sqlite"
    path.touch()
    with Store(path) as store:
        assert store.finished() == set()


SCHEMA_1 = """
create table cells (
    hash text primary key,
    status text not null check (status in ('finished', 'failed')),
    protocol text not null,
    figures text, cost text, warnings text, error text,
    environment text not null,
    seconds real not null,
    recorded text not null,
    trace blob, predictions blob, correct blob
) without rowid
"""


def test_a_store_of_version_0_1_is_read_and_upgraded_when_written_to(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    cell = protocol(version="0.1.0")
    connection = sqlite3.connect(path)
    connection.execute(SCHEMA_1)
    connection.execute(f"pragma application_id = {MAGIC}")
    connection.execute("pragma user_version = 1")
    values = (cell.hash, "failed", cell.json(), None, None, None, "it broke", "{}", 1.0, "then", None, None, None)
    connection.execute(f"insert into cells values ({', '.join('?' * 13)})", values)
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with Store(path, readonly=True) as store:
        (row,) = store.rows()
    assert (row.protocol, row.protocol.hash, row.label, row.error) == (cell, cell.hash, None, "it broke")
    assert path.read_bytes() == before
    for _ in range(2):
        with Store(path) as store:
            store.finish(protocol(), result(), HERE, "tent")
            assert [row.label for row in store.rows()] == ["tent", None]
    with Store(path, readonly=True) as store:
        assert [row.label for row in store.rows()] == ["tent", None]


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
