"""The paper's numbers, from one file: accuracies in percent at severity 5."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from ttc.errors import TTCError


@cache
def tables() -> Mapping[str, Mapping[str, Mapping[str, float]]]:
    """The tables by name, their rows by the paper's name of the method, the numbers by column.

    >>> tables()["cifar10c-wrn28-10"]["TTC"]["average"]
    82.5
    >>> tables()["components"]["+RLA"]["CIFAR-10-C"]
    82.6
    """
    document: dict[str, Any] = json.loads((files("ttc.studies") / "paper.json").read_text(encoding="utf-8"))
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, table in document["tables"].items():
        rows = table.get("rows", {})
        found[name] = {
            row: dict(values) if isinstance(values, dict) else dict(zip(table["columns"], values, strict=True))
            for row, values in rows.items()
        }
    stated = document["tables"]["batch-size"]["stated_points"]
    found["batch-size"] = {row: {"CIFAR-10-C": value} for row, value in stated.items()}
    return found


def value(table: str, row: str, column: str) -> float | None:
    """One number of the paper, None where it has none.

    >>> value("collapse", "TENT (batch size = 1)", "CIFAR-10-C"), value("collapse", "TTC", "CIFAR-10-C")
    (10.0, None)
    """
    if table not in tables():
        raise TTCError(f"the paper has no table '{table}'; it has {', '.join(tables())}")
    return tables()[table].get(row, {}).get(column)


def average(table: str, row: str, corruptions: tuple[str, ...]) -> float | None:
    """The mean of a row over some corruptions; over all fifteen it is the paper's own average, which it rounded.

    >>> average("cifar10c-wrn28-10", "SOURCE", ("fog", "snow"))
    74.45
    """
    numbers = tables()[table].get(row, {})
    if len(corruptions) == 15 and "average" in numbers:
        return numbers["average"]
    if any(name not in numbers for name in corruptions):
        return None
    return round(sum(numbers[name] for name in corruptions) / len(corruptions), 6)
