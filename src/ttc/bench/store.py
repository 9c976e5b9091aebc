"""The store: one SQLite file, one row per cell, whole or absent whatever happens to the process that writes it."""

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ttc.bench.protocol import Protocol
from ttc.bench.store_file import explain_errors, open_store_file
from ttc.errors import TTCError

if TYPE_CHECKING:
    from ttc.bench.evaluation import Result  # listing results must not wait for torch

TRACE = ("images", "accuracy", "entropy", "selected", "similarity", "loss")  # the columns of a trace
UNKNOWN_CLASS = 65535  # the prediction of an image in a cell that was added without predictions
FIGURES = ("accuracy", "nll", "ece", "per_class", "per_domain", "per_pass")
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
_DAMAGE = (ValueError, TypeError, LookupError, AttributeError, RecursionError, TTCError)  # of a changed row


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
        predictions: The predicted class of each image, ``UNKNOWN_CLASS`` if it is unknown.
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
        self._connection, self._has_labels = open_store_file(path, readonly=readonly, timeout=timeout)

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
        with explain_errors(self.path):
            columns = f"{_COLUMNS}, label" if self._has_labels else f"{_COLUMNS}, null"
            for values in self._connection.execute(f"select {columns} from cells order by recorded, hash"):
                try:
                    row = _row(values)
                except _DAMAGE as error:
                    reason = str(error).partition("\n")[0][:120] or type(error).__name__
                    warnings.warn(
                        f"the cell {str(values[0])[:12]} of the store {self.path} is damaged ({reason}) and left out; "
                        "the next ttc run that contains it runs it again",
                        stacklevel=2,
                    )
                    continue
                yield row

    def add(self, other: "Store") -> int:
        """Copy the finished cells of another store that are not finished here, as they were recorded there.

        Returns:
            How many there were. Those of the other store that are damaged are named in a warning and left out.
        """
        missing = other.finished() - self.finished()
        columns = f"{_COLUMNS}, label" if other._has_labels else f"{_COLUMNS}, null"
        with explain_errors(other.path):
            cells = [
                other._connection.execute(f"select {columns} from cells where hash = ?", (key,)).fetchone()
                for key in sorted(missing)
            ]
        with explain_errors(self.path), self._connection:
            for values in cells:
                self._insert(values)
        return len(cells)

    def add_rows(self, rows: Iterable[Row]) -> int:
        """Record finished cells as they are, but for those that are finished here; all of them or none.

        Returns:
            How many there were.
        """
        known = self.finished()
        missing = {row.protocol.hash: row for row in rows if row.protocol.hash not in known}
        with explain_errors(self.path), self._connection:
            for row in missing.values():
                self._insert(_values(row))
        return len(missing)

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
        with explain_errors(self.path), self._connection:
            self._insert((*values, *rest))

    def _insert(self, values: tuple[Any, ...]) -> None:
        """Write a cell inside a transaction, in place of one that failed or cannot be read."""
        if self._is_damaged(values[0]):
            self._connection.execute("delete from cells where hash = ?", (values[0],))
        self._connection.execute(_WRITE, values)

    def _is_damaged(self, key: str) -> bool:
        """Tell whether there is a cell of this hash that cannot be read."""
        found = self._connection.execute(f"select {_COLUMNS}, label from cells where hash = ?", (key,)).fetchone()
        try:
            if found is not None:
                _row(found)
            return False
        except _DAMAGE:
            return True


def _values(row: Row) -> tuple[Any, ...]:
    """The columns of a finished cell, as :func:`_row` reads them."""
    return (
        row.protocol.hash,
        row.status,
        row.protocol.json(),
        json.dumps(dict(row.figures)),
        json.dumps(dict(row.cost)),
        json.dumps(row.warnings),
        row.error,
        json.dumps(dict(row.environment)),
        row.seconds,
        row.recorded,
        row.trace.astype("<f4").tobytes(),
        row.predictions.astype("<u2").tobytes(),
        np.packbits(row.correct).tobytes(),
        row.label,
    )


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
