"""What a study found, as plain values: result tables with the cells behind them, claims, figures."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ttc.errors import TTCError
from ttc.files import atomic

if TYPE_CHECKING:
    from ttc.bench.store import Row

FORMAT = 2
AVERAGE = "average"
VERDICTS = ("holds", "does not hold", "undecided")
Spec = dict[str, Any]  # a Vega-Lite specification with its data


@dataclass(frozen=True)
class Value:
    """A number of a result table.

    Args:
        ours: The number measured here.
        error: Its standard error over images.
        paper: The paper's number for the same row and the same corruptions.
        cells: The hashes of the cells it was computed from.
        flag: Why it deviates from the paper more than expected, empty if it does not.
    """

    ours: float | None
    error: float | None = None
    paper: float | None = None
    cells: tuple[str, ...] = ()
    flag: str = ""

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's, where both are known."""
        return None if self.ours is None or self.paper is None else self.ours - self.paper

    @property
    def interval(self) -> tuple[float, float, float] | None:
        """Ours with the ends of its 95 % interval, where known."""
        if self.ours is None:
            return None
        half = 1.96 * (self.error or 0.0)
        return self.ours, self.ours - half, self.ours + half


@dataclass(frozen=True)
class ResultTable:
    """Values by row and column.

    Args:
        name: The name of its files.
        title: What the numbers are, with their unit.
        columns: The columns in reading order; the average, if there is one, comes first.
        rows: The values, by row and column.
        best: Which value of a column is set in bold: ``max``, ``min`` or none when empty.
        digits: The decimals printed.
        notes: Sentences below the table.
        what: What a row is.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: Mapping[str, Mapping[str, Value]]
    best: str = "max"
    digits: int = 1
    notes: tuple[str, ...] = ()
    what: str = "method"

    def winners(self, column: str) -> set[str]:
        """Return the rows whose number, as printed, is the best of its column."""
        found = {row: round(values[column].ours or 0.0, self.digits) for row, values in self.rows.items()
                 if column in values and values[column].ours is not None}  # fmt: skip
        if not self.best or len(found) < 2:
            return set()
        top = max(found.values()) if self.best == "max" else min(found.values())
        return {row for row, value in found.items() if value == top}

    def beside_paper(self, column: str) -> dict[str, Value]:
        """Return the values of a column that the paper has a number for."""
        every = {row: values[column] for row, values in self.rows.items() if column in values}
        return {row: value for row, value in every.items() if value.paper is not None}


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, the verdict here, and the numbers behind it."""

    text: str
    verdict: str
    evidence: str


@dataclass(frozen=True)
class Figure:
    """A plot as a Vega-Lite specification, with a file name and a caption."""

    name: str
    spec: Spec
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
    tables: tuple[ResultTable, ...] = ()
    claims: tuple[Claim, ...] = ()
    figures: tuple[Figure, ...] = ()
    notes: tuple[str, ...] = ()
    cells: tuple[Cell, ...] = field(default=(), repr=False)


def cell_record(row: "Row") -> Cell:
    """Return what a report states about a row of the store."""
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


def write_findings(findings: Findings, path: Path) -> None:
    """Write the findings as JSON."""
    with atomic(path) as part:
        part.write_text(json.dumps({"format": FORMAT, **asdict(findings)}, indent=1), encoding="utf-8")


def read_findings(path: Path) -> Findings:
    """Read the findings that :func:`write_findings` wrote.

    Raises:
        TTCError: The file cannot be read, is of another format, or is damaged.
    """
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        written = values.pop("format")
        if written != FORMAT:
            raise TTCError(
                f"{path} has findings of format {written}, this version of ttc reads format {FORMAT}; write them again "
                "with ttc reproduce"
            )
        return _findings(values)
    except OSError as error:
        raise TTCError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, TTCError):
            raise
        raise TTCError(f"{path} is not a findings file of a study ({error}); write it with ttc reproduce") from error


def _findings(values: Mapping[str, Any]) -> Findings:
    made = {
        "tables": tuple(_table(table) for table in values["tables"]),
        "claims": tuple(Claim(**claim) for claim in values["claims"]),
        "figures": tuple(Figure(**figure) for figure in values["figures"]),
        "notes": tuple(values["notes"]),
        "cells": tuple(Cell(**{**cell, "warnings": tuple(cell["warnings"])}) for cell in values["cells"]),
    }
    return Findings(**{**values, **made})


def _table(values: Mapping[str, Any]) -> ResultTable:
    rows = {
        row: {column: Value(**{**value, "cells": tuple(value["cells"])}) for column, value in columns.items()}
        for row, columns in values["rows"].items()
    }
    return ResultTable(**{**values, "columns": tuple(values["columns"]), "rows": rows, "notes": tuple(values["notes"])})
