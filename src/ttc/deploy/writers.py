"""Callbacks that write what happens: JSON lines, CSV, Prometheus text, TensorBoard."""

import csv
import importlib
import json
import math
import re
from collections.abc import Mapping
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from ttc.core import BatchRecord, Callback, Event
from ttc.errors import TTCError
from ttc.files import atomic


class FileWriter(Callback):
    """What the writers of files share: an open file that ``close``, or the end of a ``with`` block, closes.

    Args:
        path: The file to append to; it is created with its folder.

    Raises:
        TTCError: If it cannot be written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.file: TextIOWrapper = self.path.open("a", encoding="utf-8", newline="")
        except OSError as error:
            raise TTCError(f"cannot write {path}: {error.strerror or error}") from error

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class JSONLinesWriter(FileWriter):
    """Appends one JSON object per batch and per event, each with its ``kind``.

    Args:
        path: The file to append to.
    """

    def on_batch(self, record: BatchRecord) -> None:
        """Write the numbers of the batch."""
        self._write({"kind": "batch", **record.metrics})

    def on_event(self, event: Event) -> None:
        """Write the event."""
        self._write({"kind": "event", **event._asdict()})

    def _write(self, value: Mapping[str, Any]) -> None:
        plain = {name: None if _not_finite(item) else item for name, item in value.items()}  # JSON has no NaN
        self.file.write(json.dumps(plain) + "\n")
        self.file.flush()


class CSVWriter(FileWriter):
    """Appends one row per batch; the columns are those of the first batch, and events are left out.

    Args:
        path: The file to append to; one that exists must have the same columns.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        with self.path.open(encoding="utf-8", newline="") as file:
            self.columns: list[str] = next(csv.reader(file), [])

    def on_batch(self, record: BatchRecord) -> None:
        """Write the numbers of the batch."""
        metrics = record.metrics
        writer = csv.writer(self.file)
        if not self.columns:
            self.columns = list(metrics)
            writer.writerow(self.columns)
        if new := [name for name in metrics if name not in self.columns]:
            raise TTCError(f"{self.path} has no column {', '.join(new)}; write to a new file")
        writer.writerow([metrics.get(name, "") for name in self.columns])
        self.file.flush()


class PrometheusWriter(Callback):
    """Writes the numbers of the latest batch and the counts of events as Prometheus text, whole or not at all.

    Point the textfile collector of the node exporter at its folder, or serve the file.

    Args:
        path: The file to write, such as ``ttc.prom``.
        every: Write after this many batches, and after every event.
        labels: Labels of every sample, such as ``{"camera": "3"}``.
    """

    def __init__(self, path: str | Path, *, every: int = 1, labels: Mapping[str, str] | None = None) -> None:
        if every < 1:
            raise TTCError(f"every is a positive number of batches, got {every}")
        self.path, self.every, self.labels = Path(path), every, dict(labels or {})
        self.metrics: dict[str, float] = {}
        self.events: dict[str, int] = {}

    def on_batch(self, record: BatchRecord) -> None:
        """Write the numbers of the batch."""
        self.metrics = record.metrics
        if record.batch % self.every == 0:
            self._write()

    def on_event(self, event: Event) -> None:
        """Count the event by its action, and write."""
        self.events[event.action] = self.events.get(event.action, 0) + 1
        self._write()

    def _write(self) -> None:
        lines = [prometheus_text(self.metrics, labels=self.labels)] if self.metrics else []
        if self.events:
            lines.append("# TYPE ttc_actions_total counter\n")
            for action, count in self.events.items():
                lines.append(f"ttc_actions_total{_labels({**self.labels, 'action': action})} {count}\n")
        with atomic(self.path) as part:
            part.write_text("".join(lines), encoding="utf-8")


class TensorBoardWriter(Callback):
    """Writes the numbers of every batch as TensorBoard scalars over images, and events as text.

    Args:
        folder: The log directory.

    Raises:
        TTCError: If the package ``tensorboard`` is missing.
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            tensorboard = importlib.import_module("torch.utils.tensorboard")
        except ImportError as error:
            raise TTCError(
                f"TensorBoardWriter needs the package tensorboard ({error}): pip install tensorboard"
            ) from error
        self.writer = tensorboard.SummaryWriter(str(folder))

    def on_batch(self, record: BatchRecord) -> None:
        """Write the numbers of the batch."""
        for name, value in record.metrics.items():
            if name not in {"batch", "images"}:
                self.writer.add_scalar(f"ttc/{name}", value, record.images)

    def on_event(self, event: Event) -> None:
        """Write the event."""
        self.writer.add_text("ttc/events", f"{event.action}: {event.reason}", event.images)
        self.writer.flush()

    def close(self) -> None:
        """Write what is pending and close the log."""
        self.writer.close()

    def __enter__(self) -> "TensorBoardWriter":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def prometheus_text(
    metrics: Mapping[str, float], *, prefix: str = "ttc_", labels: Mapping[str, str] | None = None
) -> str:
    """Format numbers, such as ``guard.stats``, in the text format of Prometheus.

    Args:
        metrics: Numbers by name.
        prefix: What the names start with.
        labels: Labels of every sample.

    Returns:
        One gauge per number.

    Example:
        >>> print(prometheus_text({"level": 1, "parameter drift": 0.5}, labels={"camera": "3"}), end="")
        # TYPE ttc_level gauge
        ttc_level{camera="3"} 1
        # TYPE ttc_parameter_drift gauge
        ttc_parameter_drift{camera="3"} 0.5
    """
    lines = []
    for name, value in metrics.items():
        full = prefix + re.sub(r"\W", "_", name, flags=re.ASCII)
        shown = "NaN" if math.isnan(value) else f"{'+' if value > 0 else '-'}Inf" if math.isinf(value) else f"{value:g}"
        shown = str(value) if isinstance(value, int) else shown
        lines.append(f"# TYPE {full} gauge\n{full}{_labels(labels or {})} {shown}\n")
    return "".join(lines)


def _labels(labels: Mapping[str, str]) -> str:
    quoted = {name: re.sub(r'(["\\])', r"\\\1", str(value)).replace("\n", r"\n") for name, value in labels.items()}
    return "{" + ",".join(f'{name}="{value}"' for name, value in quoted.items()) + "}" if labels else ""


def _not_finite(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
