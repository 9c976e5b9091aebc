"""Finished cells as a CSV file that another store can add: small enough to be published beside a table.

It has which images were predicted correctly, so that methods can be compared image by image, but neither the
predicted classes nor the traces nor the accuracy per class.
"""

import base64
import binascii
import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttc.bench.protocol import Protocol
from ttc.bench.store import TRACE, UNKNOWN_CLASS, Row
from ttc.errors import TTCError

COLUMNS = ("hash", "label", "protocol", "figures", "cost", "warnings", "environment", "seconds", "recorded", "correct")
_FIGURES = ("accuracy", "nll", "ece", "per_domain", "per_pass")
_DAMAGE = (ValueError, TypeError, LookupError, AttributeError, RecursionError, TTCError)


def as_cells_csv(rows: Sequence[Row]) -> str:
    """Return the finished ones of these rows as CSV, ordered by hash: the same cells are the same text."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(
        (
            row.protocol.hash,
            row.label or "",
            row.protocol.json(),
            _compact({name: row.figures[name] for name in _FIGURES}),
            _compact(row.cost),
            _compact(row.warnings),
            _compact(row.environment),
            round(row.seconds, 3),
            row.recorded,
            _encoded(row.correct),
        )
        for row in sorted(rows, key=lambda row: row.protocol.hash)
        if row.status == "finished"
    )
    return text.getvalue()


def read_cells_csv(path: Path) -> list[Row]:
    """Read what :func:`as_cells_csv` wrote.

    Args:
        path: The CSV file.

    Returns:
        The cells, with ``UNKNOWN_CLASS`` as their predictions and an empty trace.

    Raises:
        TTCError: If it is no such file, or a line of it was changed or cut off.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            found = [line for line in csv.reader(file) if line]
    except OSError as error:
        raise TTCError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise TTCError(f"{path} is not a CSV file of cells ({error}); {_ADVICE}") from error
    if not found or tuple(found[0]) != COLUMNS:
        raise TTCError(f"{path} has other columns than a file of cells, which has {', '.join(COLUMNS)}; {_ADVICE}")
    return [_row(path, number, line) for number, line in enumerate(found[1:], start=2)]


_ADVICE = "write one with: ttc results --format cells --output FILE.csv"


def _row(path: Path, number: int, line: Sequence[str]) -> Row:
    try:
        fields = dict(zip(COLUMNS, line, strict=True))
        correct = _decoded(fields["correct"])
        protocol = Protocol.read(fields["protocol"])
        if protocol.hash != fields["hash"]:
            raise ValueError("its protocol is not the one of its hash")
        figures = {"per_class": [], **_object(fields["figures"])}
        if any(name not in figures for name in _FIGURES) or not _agree(figures["accuracy"], correct):
            raise ValueError("its accuracy is not that of its images")
        return Row(
            protocol=protocol,
            status="finished",
            figures=figures,
            cost=_object(fields["cost"]),
            warnings=tuple(map(str, json.loads(fields["warnings"]))),
            error=None,
            environment=_object(fields["environment"]),
            seconds=float(fields["seconds"]),
            recorded=fields["recorded"],
            trace=np.zeros((0, len(TRACE)), np.float32),
            predictions=np.full(len(correct), UNKNOWN_CLASS, np.uint16),
            correct=correct,
            label=fields["label"] or None,
        )
    except _DAMAGE as error:
        reason = str(error).partition("\n")[0][:120] or type(error).__name__
        raise TTCError(f"cell {number - 1} of {path} is damaged ({reason}); nothing was added") from error


def _agree(accuracy: float, correct: NDArray[np.bool_]) -> bool:
    return len(correct) > 0 and bool(abs(float(correct.mean()) - accuracy) < 1e-6)


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise TypeError(f"expected a JSON object, got {type(value).__name__}")
    return value


def _encoded(correct: NDArray[np.bool_]) -> str:
    """The number of images, and a bit for each in base64."""
    return f"{len(correct)}:{base64.b64encode(np.packbits(correct).tobytes()).decode()}"


def _decoded(text: str) -> NDArray[np.bool_]:
    count, _, bits = text.partition(":")
    try:
        packed = np.frombuffer(base64.b64decode(bits, validate=True), np.uint8)
    except binascii.Error as error:
        raise ValueError("its bits are not base64") from error
    if len(packed) != (int(count) + 7) // 8:
        raise ValueError(f"it has {8 * len(packed)} bits for {count} images")
    return np.unpackbits(packed, count=int(count)).astype(np.bool_)
