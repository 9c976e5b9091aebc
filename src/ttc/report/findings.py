"""What a study found, as plain values: tables of numbers with the cells behind them, claims, figures."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ttc.errors import TTCError
from ttc.files import atomic
from ttc.report.axes import Axis
from ttc.report.chart import Chart
from ttc.report.charts import Panels
from ttc.report.marks import Rule, Series
from ttc.report.palette import Style

if TYPE_CHECKING:
    from ttc.bench.store import Row

FORMAT = 1
VERDICTS = ("holds", "does not hold", "undecided")


@dataclass(frozen=True)
class Value:
    """A number of a table: ours with its standard error, the paper's, the cells it is made of, what is odd about it."""

    ours: float | None
    error: float | None = None
    paper: float | None = None
    cells: tuple[str, ...] = ()
    odd: str = ""

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's, where both are known."""
        return None if self.ours is None or self.paper is None else self.ours - self.paper


@dataclass(frozen=True)
class Table:
    """Values by row and column; ``best`` is ``max`` or ``min`` of a column, set in bold, or empty."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: Mapping[str, Mapping[str, Value]]
    best: str = "max"
    digits: int = 1
    notes: tuple[str, ...] = ()
    what: str = "method"  # that the rows are

    def winners(self, column: str) -> set[str]:
        """The rows whose number, as printed, is the best of its column."""
        found = {row: round(values[column].ours or 0.0, self.digits) for row, values in self.rows.items()
                 if column in values and values[column].ours is not None}  # fmt: skip
        if not self.best or len(found) < 2:
            return set()
        top = max(found.values()) if self.best == "max" else min(found.values())
        return {row for row, value in found.items() if value == top}


@dataclass(frozen=True)
class Claim:
    """Something the paper says, whether it holds here, and the numbers that say so."""

    text: str
    verdict: str
    evidence: str


@dataclass(frozen=True)
class Figure:
    """A chart with a file name and a sentence below it."""

    name: str
    chart: Chart | Panels
    caption: str = ""


@dataclass(frozen=True)
class Cell:
    """The full record of one experiment, without its arrays."""

    hash: str
    protocol: Mapping[str, Any]
    figures: Mapping[str, Any]
    cost: Mapping[str, float]
    environment: Mapping[str, Any]
    seconds: float
    recorded: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Findings:
    """Everything a report says about one study."""

    study: str
    title: str
    about: str
    profile: str
    headline: str
    tables: tuple[Table, ...] = ()
    claims: tuple[Claim, ...] = ()
    figures: tuple[Figure, ...] = ()
    notes: tuple[str, ...] = ()
    cells: tuple[Cell, ...] = field(default=(), repr=False)


def cell_of(row: "Row") -> Cell:
    """What a report keeps of a row of the store."""
    figures = {name: row.figures[name] for name in ("accuracy", "nll", "ece")}
    return Cell(
        row.protocol.hash,
        json.loads(row.protocol.json()),
        figures,
        dict(row.cost),
        dict(row.environment),
        row.seconds,
        row.recorded,
        row.warnings,
    )


def write(findings: Findings, path: Path) -> None:
    """Keep the findings as JSON."""
    with atomic(path) as part:
        part.write_text(json.dumps({"format": FORMAT, **asdict(findings)}, indent=1), encoding="utf-8")


def read(path: Path) -> Findings:
    """The findings that :func:`write` kept."""
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if values.pop("format") != FORMAT:
            raise TTCError(f"{path} was written by another version of ttc; make it anew with ttc reproduce")
        return _findings(values)
    except OSError as error:
        raise TTCError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, TTCError):
            raise
        raise TTCError(f"{path} is not what a study writes ({error}); make it anew with ttc reproduce") from error


def _findings(values: Mapping[str, Any]) -> Findings:
    made = {
        "tables": tuple(_table(table) for table in values["tables"]),
        "claims": tuple(Claim(**claim) for claim in values["claims"]),
        "figures": tuple(
            Figure(figure["name"], _chart(figure["chart"]), figure["caption"]) for figure in values["figures"]
        ),
        "notes": tuple(values["notes"]),
        "cells": tuple(Cell(**{**cell, "warnings": tuple(cell["warnings"])}) for cell in values["cells"]),
    }
    return Findings(**{**values, **made})


def _table(values: Mapping[str, Any]) -> Table:
    rows = {
        row: {column: Value(**{**value, "cells": tuple(value["cells"])}) for column, value in columns.items()}
        for row, columns in values["rows"].items()
    }
    return Table(**{**values, "columns": tuple(values["columns"]), "rows": rows, "notes": tuple(values["notes"])})


def _chart(values: Mapping[str, Any]) -> Chart | Panels:
    if "charts" in values:
        charts = [_chart(chart) for chart in values["charts"]]
        return Panels(values["title"], tuple(chart for chart in charts if isinstance(chart, Chart)), values["least"])
    made = {
        "x": _axis(values["x"]),
        "y": _axis(values["y"]),
        "series": tuple(_series(series) for series in values["series"]),
        "rules": tuple(Rule(**rule) for rule in values["rules"]),
        "values": tuple(values["values"]),
    }
    return Chart(**{**values, **made})


def _axis(values: Mapping[str, Any]) -> Axis:
    return Axis(**{**values, "ticks": _pairs(values["ticks"])})


def _series(values: Mapping[str, Any]) -> Series:
    made = {
        "points": _pairs(values["points"]),
        "style": Style(*values["style"]),
        "spread": _pairs(values["spread"]),
        "notes": tuple(values["notes"]),
    }
    return Series(**{**values, **made})


def _pairs(values: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    return tuple(tuple(pair) for pair in values)
