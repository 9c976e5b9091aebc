"""The store: one SQLite file, one row per cell, whole or absent whatever happens to the process that writes it."""

import json
import sqlite3
import warnings
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
    from ttc.bench.evaluation import Result  # listing results must not wait for torch

SCHEMA = 2  # 1, of ttc 0.1, had no label; it is read, and upgraded when written to
MAGIC = 0x74746362  # "ttcb": tells our files from other SQLite files
TRACE = ("images", "accuracy", "entropy", "selected", "similarity", "loss")  # the columns of a trace
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
    trace blob, predictions blob, correct blob,
    label text
) without rowid
"""
_COLUMNS = (
    "hash, status, protocol, figures, cost, warnings, error, environment, seconds, recorded, "
    "trace, predictions, correct"
)
_WRITE = f"""
insert into cells ({_COLUMNS}, label) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (hash) do update set
    status = excluded.status, figures = excluded.figures, cost = excluded.cost, warnings = excluded.warnings,
    error = excluded.error, environment = excluded.environment, seconds = excluded.seconds,
    recorded = excluded.recorded, trace = excluded.trace, predictions = excluded.predictions,
    correct = excluded.correct, label = excluded.label
where cells.status = 'failed'
"""


@dataclass(frozen=True)
class Row:
    """A recorded cell: finished with figures, or failed with an error.

    Args:
        protocol: What was run.
        status: ``finished`` or ``failed``.
        figures: Accuracy, negative log-likelihood, calibration error, and accuracies per class, domain and pass.
        cost: The fields of :class:`ttc.bench.Cost`.
        warnings: The warnings that were raised.
        error: Why the cell failed, None for a finished one.
        environment: Versions, machine and commit.
        seconds: The time the cell took.
        recorded: When it was recorded, in ISO 8601.
        trace: One row per batch with the columns of ``TRACE``.
        predictions: The predicted class of each image.
        correct: Whether it is the label.
        label: The method as a user would write it; None in a store of ttc 0.1.
    """

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
    label: str | None = None

    @property
    def traces(self) -> dict[str, list[float | None]]:
        """The trace by name, one value per batch, None where a method has no such value."""
        columns = zip(TRACE, self.trace.T.astype(float), strict=True)
        return {name: [None if np.isnan(value) else float(value) for value in column] for name, column in columns}


class Store:
    """Results by protocol hash. A finished cell is never overwritten, a failed one is replaced by its next run.

    Write-ahead logging and one transaction per cell: a kill at any moment loses at most the cell being written, and
    several runs may write at once. A context manager that closes the file.

    Args:
        path: The SQLite file; created if it does not exist.
        readonly: Write nothing, and require the file to exist. A store of ttc 0.1 is read as it is.
        timeout: How many seconds to wait for other programs that write.

    Raises:
        TTCError: If the file is not a store, is locked, or was written by a newer version.
    """

    def __init__(self, path: Path, *, readonly: bool = False, timeout: float = 30.0) -> None:
        self.path = path
        if readonly and not path.is_file():
            raise TTCError(f"there is no store {path}; create one with: ttc run --store {path}")
        with self._explain_errors():
            self._connection = _open(path, timeout) if not readonly else _open_readonly(path, timeout)
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
        """Close the file, with its log merged into it."""
        self._connection.close()

    def finished(self) -> set[str]:
        """Return the hashes of the finished cells that can be read: a damaged one is run again."""
        return {row.protocol.hash for row in self.rows() if row.status == "finished"}

    def rows(self) -> Iterator[Row]:
        """Yield all recorded cells, in the order in which they were recorded; warn of those that cannot be read."""
        with self._explain_errors():
            columns = f"{_COLUMNS}, label" if self._has_labels else f"{_COLUMNS}, null"
            for values in self._connection.execute(f"select {columns} from cells order by recorded, hash"):
                try:
                    row = _row(values)
                except (ValueError, TypeError, LookupError, AttributeError, RecursionError, TTCError) as error:
                    reason = str(error).partition("\n")[0][:120] or type(error).__name__
                    warnings.warn(
                        f"the cell {str(values[0])[:12]} of the store {self.path} is damaged ({reason}) and left out; "
                        "the next ttc run that contains it runs it again",
                        stacklevel=2,
                    )
                    continue
                yield row

    def finish(
        self, protocol: Protocol, result: "Result", environment: Mapping[str, Any], label: str | None = None
    ) -> None:
        """Record a finished cell, in one transaction; a cell that is finished already stays as it is.

        Args:
            protocol: What was run.
            result: What :func:`ttc.bench.evaluate` returned.
            environment: Where it was run.
            label: The method as a user would write it.
        """
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
            label,
        )

    def fail(
        self,
        protocol: Protocol,
        error: str,
        environment: Mapping[str, Any],
        seconds: float,
        label: str | None = None,
    ) -> None:
        """Record that a cell failed, and why; the next run tries it again.

        Args:
            protocol: What was run.
            error: Why it failed.
            environment: Where it was run.
            seconds: The time it took.
            label: The method as a user would write it.
        """
        self._write(protocol, "failed", None, None, None, error, environment, seconds, None, None, None, label)

    def _write(
        self,
        protocol: Protocol,
        status: str,
        figures: str | None,
        cost: str | None,
        notes: str | None,
        error: str | None,
        environment: Mapping[str, Any],
        seconds: float,
        *rest: bytes | str | None,
    ) -> None:
        recorded = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        here = json.dumps(dict(environment))
        values = (protocol.hash, status, protocol.json(), figures, cost, notes, error, here, seconds, recorded)
        with self._explain_errors(), self._connection:
            if self._is_damaged(protocol.hash):
                self._connection.execute("delete from cells where hash = ?", (protocol.hash,))
            self._connection.execute(_WRITE, (*values, *rest))

    def _is_damaged(self, key: str) -> bool:
        """Tell whether there is a cell of this hash that cannot be read."""
        found = self._connection.execute(f"select {_COLUMNS}, label from cells where hash = ?", (key,)).fetchone()
        try:
            if found is not None:
                _row(found)
            return False
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError, TTCError):
            return True

    def _prepare(self, readonly: bool) -> None:
        (magic,) = self._connection.execute("pragma application_id").fetchone()
        (version,) = self._connection.execute("pragma user_version").fetchone()
        (tables,) = self._connection.execute("select count(*) from sqlite_master").fetchone()
        if magic != MAGIC and (tables or readonly):
            raise TTCError(f"{self.path} is a SQLite file but not a store of results; choose another --store")
        if version > SCHEMA:
            raise TTCError(
                f"{self.path} was written by a newer version of ttc (schema {version}, this one reads up to {SCHEMA}); "
                "update ttc, or choose another --store"
            )
        self._has_labels = not readonly or version >= 2
        if readonly:
            return
        self._connection.execute("pragma journal_mode = wal")
        self._connection.execute("pragma synchronous = full")
        with self._connection:
            self._connection.execute("begin immediate")
            self._connection.execute(_TABLE)
            (version,) = self._connection.execute("pragma user_version").fetchone()  # nobody else upgrades it meanwhile
            if version == 1:
                self._connection.execute("alter table cells add column label text")
            self._connection.execute(f"pragma application_id = {MAGIC}")
            self._connection.execute(f"pragma user_version = {SCHEMA}")

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Turn errors of SQLite and of the system into sentences a user can act on."""
        try:
            yield
        except OSError as error:
            raise TTCError(f"cannot create the store {self.path}: {error.strerror}; choose another --store") from error
        except sqlite3.Error as error:
            raise TTCError(f"the store {self.path} {_reason(error)}") from error


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


def _json_object(text: str | None) -> dict[str, Any]:
    value = json.loads(text or "{}")
    if not isinstance(value, dict):
        raise TypeError(f"expected a JSON object, got {type(value).__name__}")
    return value


def _figures(text: str | None, status: str) -> dict[str, Any]:
    figures = _json_object(text)
    if status == "finished":
        absent = [name for name in FIGURES if name not in figures]
        if absent or not isinstance(figures["accuracy"], int | float):
            raise ValueError(f"it has no {', '.join(absent) or 'accuracy'}")
    return figures


def _row(values: tuple[Any, ...]) -> Row:
    key, status, protocol, figures, cost, notes, error, environment, seconds, recorded, trace, classes, bits, label = (
        values
    )
    cell = Protocol.read(protocol)
    if cell.hash != key:
        raise ValueError("its protocol is not the one of its hash")
    predictions = np.frombuffer(classes or b"", "<u2")
    if len(bits or b"") != (len(predictions) + 7) // 8:
        raise ValueError("its predictions and their correctness differ in number")
    flags = np.unpackbits(np.frombuffer(bits or b"", np.uint8), count=len(predictions)).astype(np.bool_)
    return Row(
        protocol=cell,
        status=status,
        figures=_figures(figures, status),
        cost=_json_object(cost),
        warnings=tuple(map(str, json.loads(notes or "[]"))),
        error=error,
        environment=_json_object(environment),
        seconds=float(seconds),
        recorded=str(recorded),
        trace=np.frombuffer(trace or b"", "<f4").reshape(-1, len(TRACE)),
        predictions=predictions,
        correct=flags,
        label=label,
    )
