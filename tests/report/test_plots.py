import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.report.made import KINDS, METHODS, result_table
from ttc.report.palette import style
from ttc.report.plots import accuracy_figure


def data(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of every data set in a specification."""
    found = list(spec["data"]["values"]) if "data" in spec else []
    return found + [row for part in (*spec.get("layer", ()), *spec.get("concat", ())) for row in data(part)]


def marks(spec: Mapping[str, Any]) -> Iterator[str]:
    """The kinds of mark in a specification."""
    if "mark" in spec:
        yield spec["mark"]["type"]
    for part in (*spec.get("layer", ()), *spec.get("concat", ())):
        yield from marks(part)


@pytest.mark.parametrize("kind", KINDS)
def test_a_plot_is_plain_json_with_its_data(kind: str) -> None:
    spec = KINDS[kind]()
    assert json.loads(json.dumps(spec)) == spec
    assert spec["$schema"].startswith("https://vega.github.io/schema/vega-lite/v")
    assert data(spec)
    assert spec["title"]
    assert "config" not in spec, "the theme is the renderer's"
    assert set(spec["usermeta"]["fit"]) == {"legend", "panel", "columns"}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_data_give_the_same_plot(kind: str) -> None:
    assert _without_views(KINDS[kind]()) == _without_views(KINDS[kind]())


def _without_views(spec: dict[str, Any]) -> str:
    """The specification without the numbers by which Altair counts views."""
    names = {name for param in spec.get("params", ()) for name in param.get("views", ())}
    text = json.dumps(spec)
    for name in names:
        text = text.replace(f'"{name}"', '"view"')
    return text


@pytest.mark.parametrize(
    ("kind", "mark"), [("dots", "rule"), ("scatter", "rule"), ("lines", "area"), ("panels", "area")]
)
def test_every_accuracy_has_its_interval(kind: str, mark: str) -> None:
    spec = KINDS[kind]()
    assert mark in set(marks(spec))
    assert all(row["low"] <= row["y" if "y" in row else "value"] <= row["high"] for row in data(spec) if "low" in row)


@pytest.mark.parametrize("kind", ["dots", "lines", "scatter", "panels", "areas"])
def test_the_legend_selects_and_marks_have_tooltips(kind: str) -> None:
    spec = KINDS[kind]()
    assert [param["bind"] for param in spec["params"] if param["name"] == "pick"] == ["legend"]
    assert '"tooltip"' in json.dumps(spec)


def test_a_method_has_its_colour_and_mark() -> None:
    text = json.dumps(KINDS["dots"]())
    for method in METHODS:
        assert style(method).colour in text
        assert style(method).shape in text


def test_numbers_are_written_by_one_function() -> None:
    texts = [row["number"] for row in data(KINDS["gains"]()) if "number" in row]
    assert texts == ["+1.80", "−0.70", "0.00"]


def test_the_figure_of_a_table_has_its_columns_in_order_and_no_gaps() -> None:
    rows = data(accuracy_figure("main", "t", result_table()).spec)
    assert [(row["row"], row["series"]) for row in rows] == [
        ("average", "TENT"),
        ("average", "TTC"),
        ("average", "TENT + flip"),
        ("fog", "TENT"),
    ]
    only = data(accuracy_figure("main", "t", result_table(), ["TTC"]).spec)
    assert [row["series"] for row in only] == ["TTC"]
    assert only[0]["text"] == "71.2 (70.3 to 72.2)"
