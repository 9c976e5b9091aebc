"""Rows as plain records, and records as JSON, CSV or Parquet."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ttc.bench.comparison import method_names
from ttc.bench.store import Row
from ttc.errors import TTCError
from ttc.files import atomic

Record = dict[str, Any]


def records(rows: Sequence[Row], *, traces: bool = False) -> list[Record]:
    """Return one flat record per row: the protocol, the figures, the cost, the environment."""
    names = method_names(rows)
    return [_record(row, names[row.protocol.hash], traces) for row in rows]


def as_json(found: Sequence[Record]) -> str:
    """Return a JSON list with one object per cell."""
    return json.dumps(found, indent=2, allow_nan=False)


def as_csv(found: Sequence[Record]) -> str:
    """Return CSV with a header and one line per cell; lists and objects are JSON in their field."""
    text = io.StringIO()
    if found:
        writer = csv.DictWriter(text, list(found[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows([{key: _flat(value) for key, value in record.items()} for record in found])
    return text.getvalue()


def write_parquet(found: Sequence[Record], path: Path) -> None:
    """Write a Parquet file with the columns of the CSV; needs pyarrow."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise TTCError("Parquet needs pyarrow: pip install 'pyarrow>=15', or choose --format csv") from error
    table = pyarrow.Table.from_pylist([{key: _flat(value) for key, value in record.items()} for record in found])
    with atomic(path) as part:
        pyarrow.parquet.write_table(table, part)


def _record(row: Row, label: str, traces: bool) -> Record:
    cell = row.protocol
    accuracy = row.figures.get("accuracy")
    return {
        "hash": cell.hash,
        "status": row.status,
        "method": cell.method,
        "label": label,
        "corruption": "+".join(cell.corruptions),
        "severity": cell.severity,
        "scenario": cell.scenario,
        "batch_size": cell.batch_size,
        "seed": cell.seed,
        "images": cell.images,
        "accuracy": accuracy,
        "error": None if accuracy is None else 1 - accuracy,
        **{name: row.figures.get(name) for name in ("nll", "ece", "per_class", "per_domain", "per_pass")},
        **{name: row.cost.get(name) for name in _COST},
        "seconds": row.seconds,
        "recorded": row.recorded,
        "dataset": cell.dataset,
        "data_checksum": cell.data_checksum,
        "model": cell.model,
        "model_checksum": cell.model_checksum,
        "options": json.loads(cell.options),
        "optimizer": cell.optimizer,
        "dtype": cell.dtype,
        "device": cell.device,
        "threads": cell.threads,
        "version": cell.version,
        "method_checksum": cell.method_checksum,
        "textures": cell.textures,
        "environment": dict(row.environment),
        "warnings": list(row.warnings),
        "failure": row.error,
        **({"trace": row.traces} if traces else {}),
    }


_COST = ("forwards", "backwards", "median_ms", "p95_ms", "peak_memory_mb", "trainable")


def _flat(value: object) -> object:
    return json.dumps(value) if isinstance(value, dict | list) else value
