"""The SQLite file of a store: open, create and upgrade it, and explain the errors of SQLite."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ttc.errors import TTCError

SCHEMA = 2  # 1, of ttc 0.1, had no label; it is read, and upgraded when written to
MAGIC = 0x74746362  # "ttcb": tells our files from other SQLite files
TABLE = """
create table if not exists cells (
    hash text primary key,
    status text not null check (status in ('finished', 'failed')),
    protocol text not null,
    figures text, cost text, warnings text, error text,
    environment text not null,
    seconds real not null,
    recorded text not null,
    trace blob, predictions blob, correct blob,
    label text
) without rowid
"""


class StoreFile(NamedTuple):
    """An open file.

    Args:
        connection: The connection to it.
        has_labels: Whether its cells have labels: those of ttc 0.1 have none until they are written to.
    """

    connection: sqlite3.Connection
    has_labels: bool


def open_store_file(path: Path, *, readonly: bool, timeout: float) -> StoreFile:
    """Open the file of a store.

    Args:
        path: The file; created if it does not exist.
        readonly: Write nothing, and require the file to exist.
        timeout: How many seconds to wait for other programs that write.

    Raises:
        TTCError: If the file is not a store, is locked, or was written by a newer version.
    """
    if readonly and not path.is_file():
        raise TTCError(f"there is no store {path}; create one with: ttc run --store {path}")
    with explain_errors(path):
        connection = _open_readonly(path, timeout) if readonly else _open(path, timeout)
        try:
            version = _check(connection, path, readonly=readonly)
            if not readonly:
                _create_or_upgrade(connection)
        except BaseException:
            connection.close()
            raise
    return StoreFile(connection, not readonly or version >= 2)


@contextmanager
def explain_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the system into sentences a user can act on."""
    try:
        yield
    except OSError as error:
        raise TTCError(f"cannot create the store {path}: {error.strerror}; choose another --store") from error
    except sqlite3.Error as error:
        raise TTCError(f"the store {path} {_reason(error)}") from error


def _open(path: Path, timeout: float) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    return sqlite3.connect(path, timeout=timeout)


def _open_readonly(path: Path, timeout: float) -> sqlite3.Connection:
    """Open without writing; where even the log cannot be opened, read the file alone, if it is whole."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=timeout)
    try:
        connection.execute("select count(*) from sqlite_master")
    except sqlite3.OperationalError:
        connection.close()
        if path.with_name(f"{path.name}-wal").exists():
            raise
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)
    return connection


def _check(connection: sqlite3.Connection, path: Path, *, readonly: bool) -> int:
    """Return the version of the schema; reject files of other programs and of newer versions."""
    (magic,) = connection.execute("pragma application_id").fetchone()
    (version,) = connection.execute("pragma user_version").fetchone()
    (tables,) = connection.execute("select count(*) from sqlite_master").fetchone()
    if magic != MAGIC and (tables or readonly):
        raise TTCError(f"{path} is a SQLite file but not a store of results; choose another --store")
    if version > SCHEMA:
        raise TTCError(
            f"{path} was written by a newer version of ttc (schema {version}, this one reads up to {SCHEMA}); "
            "update ttc, or choose another --store"
        )
    return int(version)


def _create_or_upgrade(connection: sqlite3.Connection) -> None:
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    with connection:
        connection.execute("begin immediate")
        connection.execute(TABLE)
        (version,) = connection.execute("pragma user_version").fetchone()  # nobody else upgrades it meanwhile
        if version == 1:
            connection.execute("alter table cells add column label text")
        connection.execute(f"pragma application_id = {MAGIC}")
        connection.execute(f"pragma user_version = {SCHEMA}")


def _reason(error: sqlite3.Error) -> str:
    text = str(error)
    if "locked" in text or "busy" in text:
        return "is locked by another program; wait for it or stop it, then run the same command again"
    if "readonly" in text or "read-only" in text:
        return "is read-only; make it writable or choose another --store"
    if "full" in text:
        return "cannot grow: the disk is full; free some space and run the same command again to resume"
    if "unable to open" in text:
        return "cannot be opened or created; check its directory and your permissions, or choose another --store"
    if "not a database" in text or "malformed" in text:
        return f"is not a store of results or is damaged ({text}); choose another --store"
    return f"cannot be used ({text}); check its disk or choose another --store"
