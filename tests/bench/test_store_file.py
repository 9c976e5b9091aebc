"""The file of a store: created, upgraded, locked, full, or of something else."""

import dataclasses
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from tests.bench.conftest import protocol
from tests.bench.test_store import HERE, result
from ttc.bench import Store
from ttc.bench.store_file import MAGIC
from ttc.errors import TTCError


def test_the_file_is_in_write_ahead_mode_and_merged_on_closing(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with Store(path) as opened:
        opened.finish(protocol(), result(), HERE)
        assert (tmp_path / "a.sqlite-wal").exists()
    assert list(tmp_path.iterdir()) == [path]
    with Store(path, readonly=True) as opened:
        assert len(list(opened.rows())) == 1


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
