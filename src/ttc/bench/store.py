"""The store: one SQLite file, one row a cell, whole or absent whatever happens to the process that writes it."""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ttc.bench.protocol import Protocol
from ttc.errors import TTCError

if TYPE_CHECKING:
    from ttc.bench.evaluate import Result  # listing results must not wait for torch

SCHEMA = 1
MAGIC = 0x74746362  # "ttcb": tells our files from other SQLite files
TRACE = ("images", "accuracy", "entropy", "selected", "similarity", "loss")  # the columns of a trace, a row a batch
FIGURES = ("accuracy", "nll", "ece", "per_class", "per_domain", "per_pass")
_TABLE = """
create table if not exists cells (
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
_WRITE = """
insert into cells values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (hash) do update set
    status = excluded.status, figures = excluded.figures, cost = excluded.cost, warnings = excluded.warnings,
    error = excluded.error, environment = excluded.environment, seconds = excluded.seconds,
    recorded = excluded.recorded, trace = excluded.trace, predictions = excluded.predictions, correct = excluded.correct
where cells.status = 'failed'
"""


@dataclass(frozen=True)
class Row:
    """A recorded cell: finished with figures, or failed with an error."""

    protocol: Protocol
    status: str
    figures: Mapping[str, Any]
    cost: Mapping[str, float]
    warnings: tuple[str, ...]
    error: str | None
    environment: Mapping[str, Any]
    seconds: float
    recorded: str
    trace: NDArray[np.float32]
    predictions: NDArray[np.uint16]
    correct: NDArray[np.bool_]

    @property
    def traces(self) -> dict[str, list[float | None]]:
        """The trace by name, one value a batch, None where a method has no such thing."""
        columns = zip(TRACE, self.trace.T.astype(float), strict=True)
        return {name: [None if np.isnan(value) else float(value) for value in column] for name, column in columns}


class Store:
    """Results by protocol hash. A finished cell is never overwritten, a failed one is replaced by its next run.

    Write-ahead logging and one transaction a cell: a kill at any moment loses at most the cell being written, and
    several runs may write at once, waiting ``timeout`` seconds for one another.
    """

    def __init__(self, path: Path, *, readonly: bool = False, timeout: float = 30.0) -> None:
        self.path = path
        if readonly and not path.is_file():
            raise TTCError(f"there is no store {path}; make one with: ttc run --store {path}")
        with self._explained():
            self._connection = _opened(path, timeout) if not readonly else _opened_to_read(path, timeout)
            try:
                self._prepare(readonly)
            except BaseException:
                self._connection.close()
                raise

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the log is merged into it."""
        self._connection.close()

    def finished(self) -> set[str]:
        """The hashes of the finished cells."""
        with self._explained():
            return {row[0] for row in self._connection.execute("select hash from cells where status = 'finished'")}

    def rows(self) -> Iterator[Row]:
        """All recorded cells, in the order in which they were recorded."""
        with self._explained():
            yield from map(_row, self._connection.execute("select * from cells order by recorded, hash"))

    def finish(self, protocol: Protocol, result: "Result", environment: Mapping[str, Any]) -> None:
        """Record a finished cell, in one transaction; a cell that is finished already stays as it is."""
        self._write(
            protocol,
            "finished",
            json.dumps({name: getattr(result, name) for name in FIGURES}),
            json.dumps(asdict(result.cost)),
            json.dumps(result.warnings),
            None,
            environment,
            result.seconds,
            result.trace.astype("<f4").tobytes(),
            result.predictions.astype("<u2").tobytes(),
            np.packbits(result.correct).tobytes(),
        )

    def fail(self, protocol: Protocol, error: str, environment: Mapping[str, Any], seconds: float) -> None:
        """Record that a cell failed, and why; the next run tries it again."""
        self._write(protocol, "failed", None, None, None, error, environment, seconds, None, None, None)

    def _write(
        self,
        protocol: Protocol,
        status: str,
        figures: str | None,
        cost: str | None,
        warnings: str | None,
        error: str | None,
        environment: Mapping[str, Any],
        seconds: float,
        *blobs: bytes | None,
    ) -> None:
        recorded = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        place = json.dumps(dict(environment))
        values = (protocol.hash, status, protocol.json(), figures, cost, warnings, error, place, seconds, recorded)
        with self._explained(), self._connection:
            self._connection.execute(_WRITE, (*values, *blobs))

    def _prepare(self, readonly: bool) -> None:
        (magic,) = self._connection.execute("pragma application_id").fetchone()
        (version,) = self._connection.execute("pragma user_version").fetchone()
        (tables,) = self._connection.execute("select count(*) from sqlite_master").fetchone()
        if magic != MAGIC and (tables or readonly):
            raise TTCError(f"{self.path} is a SQLite file but not a store of results; choose another --store")
        if version > SCHEMA:
            raise TTCError(
                f"{self.path} was written by a newer version of ttc (schema {version}, this one reads up to {SCHEMA}); "
                "update with: pip install --upgrade test-time-clustering"
            )
        if readonly:
            return
        self._connection.execute("pragma journal_mode = wal")
        self._connection.execute("pragma synchronous = full")
        with self._connection:
            self._connection.execute("begin immediate")
            self._connection.execute(_TABLE)
            self._connection.execute(f"pragma application_id = {MAGIC}")
            self._connection.execute(f"pragma user_version = {SCHEMA}")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What SQLite or the system objects to, as a sentence a user can act on."""
        try:
            yield
        except OSError as error:
            raise TTCError(f"cannot make the store {self.path}: {error.strerror}; choose another --store") from error
        except sqlite3.Error as error:
            raise TTCError(f"the store {self.path} {_reason(error)}") from error


def _opened(path: Path, timeout: float) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    return sqlite3.connect(path, timeout=timeout)


def _opened_to_read(path: Path, timeout: float) -> sqlite3.Connection:
    """A connection that writes nothing; where even the log cannot be opened, the file alone is read, if it is whole."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=timeout)
    try:
        connection.execute("select count(*) from sqlite_master")
    except sqlite3.OperationalError:
        connection.close()
        if path.with_name(f"{path.name}-wal").exists():
            raise
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)
    return connection


def _reason(error: sqlite3.Error) -> str:
    text = str(error)
    if "locked" in text or "busy" in text:
        return "is locked by another program; wait for it or stop it, then run the same command again"
    if "readonly" in text or "read-only" in text:
        return "is read-only; make it writable or choose another --store"
    if "full" in text:
        return "cannot grow: the disk is full; free some space and run the same command again, finished cells are kept"
    if "unable to open" in text:
        return "cannot be opened or made; check its directory and your permissions, or choose another --store"
    if "not a database" in text or "malformed" in text:
        return f"is not a store of results or is damaged ({text}); choose another --store"
    return f"cannot be used ({text}); check its disk or choose another --store"


def _row(values: tuple[Any, ...]) -> Row:
    _, status, protocol, figures, cost, warnings, error, environment, seconds, recorded, trace, answers, bits = values
    predictions = np.frombuffer(answers or b"", "<u2")
    flags = np.unpackbits(np.frombuffer(bits or b"", np.uint8), count=len(predictions)).astype(np.bool_)
    return Row(
        protocol=Protocol.read(protocol),
        status=status,
        figures=json.loads(figures or "{}"),
        cost=json.loads(cost or "{}"),
        warnings=tuple(json.loads(warnings or "[]")),
        error=error,
        environment=json.loads(environment),
        seconds=seconds,
        recorded=recorded,
        trace=np.frombuffer(trace or b"", "<f4").reshape(-1, len(TRACE)),
        predictions=predictions,
        correct=flags,
    )
