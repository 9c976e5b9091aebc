"""The kinds of plot the reports use, described in Vega-Altair: from plain data to a Vega-Lite specification."""

from collections.abc import Mapping, Sequence
from typing import Any

from ttc.report.encodings import WIDTH, Curve, Panel, Rule, Series, finish, lines_of, zoom
from ttc.report.findings import Figure, ResultTable, Spec, Value
from ttc.report.formatting import interval_text, number, readable
from ttc.report.libraries import require_libraries
from ttc.report.palette import BLUE, GREY, ORANGE, Style

__all__ = [
    "Curve",
    "Estimate",
    "Panel",
    "Rule",
    "accuracy_figure",
    "dot_plot",
    "gain_plot",
    "line_panels",
    "line_plot",
    "scatter_plot",
]
ACCURACY = "accuracy (%)"
Estimate = tuple[float, float, float]  # a value and the ends of its 95 % interval


def dot_plot(rows: Mapping[str, Mapping[str, Estimate]], title: str, *, label: str = ACCURACY) -> Spec:
    """Describe a row for each key and on it a mark with its interval for each method.

    Args:
        rows: ``{corruption: {method: (accuracy, low, high)}}``, the first row at the top.
        title: The title.
        label: The label of the horizontal axis.
    """
    require_libraries("a figure")
    import altair as alt

    names = list(dict.fromkeys(method for row in rows.values() for method in row))
    data = [
        {"row": readable(key), "series": name, "value": value[0], "low": value[1], "high": value[2],
         "text": interval_text(*value)}
        for key, row in rows.items()
        for name, value in row.items()
    ]  # fmt: skip
    series = Series(names)
    average = "datum.value === 'average'"
    base = alt.Chart(alt.Data(values=data)).encode(
        y=alt.Y("row:N", title=None, sort=[readable(key) for key in rows]).scale(padding=0).axis(
            grid=True, bandPosition=0, labelFontWeight={"expr": f"{average} ? 'bold' : 'normal'"},
        ),
        yOffset=alt.YOffset("series:N", sort=names).scale(paddingOuter=0.6),
        color=series.colour(),
        opacity=series.opacity(),
    )  # fmt: skip
    x = alt.X("value:Q", title=f"{label}, with 95 % interval").scale(zero=False, nice=True).axis(tickCount=6)
    tips = [
        alt.Tooltip("series:N", title="method"),
        alt.Tooltip("row:N", title="on"),
        alt.Tooltip("text:N", title=label),
    ]
    whiskers = base.mark_rule(strokeWidth=1.5).encode(x=alt.X("low:Q"), x2="high:Q")
    marks = base.mark_point(filled=True, size=38).encode(x=x, shape=series.shape(), tooltip=tips)
    height = len(rows) * (max(18, 7 * len(names)) + 8)  # a lane per method
    chart = alt.layer(whiskers, marks.add_params(series.pick))
    return finish(chart.properties(height=height), title, names)


def accuracy_figure(name: str, title: str, table: ResultTable, methods: Sequence[str] = ()) -> Figure:
    """Return the figure of a table: a row per column of it, a mark with its interval per method.

    Args:
        name: The name of its files.
        title: The title.
        table: Accuracies in percent.
        methods: The rows of the table to show; all when empty.
    """
    shown = {
        column: {
            method: interval
            for method, row in table.rows.items()
            if (not methods or method in methods) and (interval := row.get(column, Value(None)).interval) is not None
        }
        for column in table.columns
    }
    return Figure(
        name, dot_plot(shown, title), "Each mark is a method with its 95 % interval; further right is better."
    )


def gain_plot(
    gains: Mapping[str, Estimate], title: str, *, label: str, paper: Mapping[str, float] | None = None
) -> Spec:
    """Describe a bar from zero for each key, with its interval and its number.

    Args:
        gains: ``{name: (gain, low, high)}``, the first at the top.
        title: The title.
        label: The label of the horizontal axis.
        paper: The paper's gains, as diamonds.
    """
    require_libraries("a figure")
    import altair as alt

    data = [
        {"row": name, "series": "here", "value": gain[0], "low": gain[1], "high": gain[2],
         "text": interval_text(*gain, digits=2, sign=True), "number": number(gain[0], 2, sign=True)}
        for name, gain in gains.items()
    ]  # fmt: skip
    names = ["here", *(["paper"] if paper else [])]
    series = Series(names, {"here": Style(BLUE, "square"), "paper": Style(GREY, "diamond")})
    y = alt.Y("row:N", title=None, sort=list(gains)).axis(grid=False)
    base = alt.Chart(alt.Data(values=data)).encode(y=y)
    tips = [alt.Tooltip("row:N", title=" "), alt.Tooltip("text:N", title="points")]
    colour = alt.when("datum.row === 'TTC'").then(alt.value(ORANGE)).otherwise(alt.value(BLUE))
    bars = base.mark_bar(height=13, opacity=0.75).encode(
        x=alt.X("value:Q", title=label).scale(nice=True, padding=8).axis(tickCount=6, labelOverlap=True),
        color=colour,
        tooltip=tips,
    )
    whiskers = base.mark_rule(strokeWidth=1.6, style="ink").encode(x="low:Q", x2="high:Q", tooltip=tips)
    numbers = base.mark_text(align="left", dx=10, style="ink").encode(x=alt.XValue("width"), text="number:N")
    zero = alt.Chart(alt.Data(values=[{}])).mark_rule(style="muted").encode(x=alt.datum(0))
    layers: list[Any] = [alt.layer(bars, whiskers, numbers), zero]
    if paper:
        theirs = [{"row": row, "series": "paper", "value": gain, "text": number(gain, 2, sign=True)}
                  for row, gain in paper.items()]  # fmt: skip
        shown = alt.Chart(alt.Data(values=theirs)).mark_point(filled=True, size=90, stroke="white", strokeWidth=1)
        layers.append(shown.encode(y=y, x="value:Q", color=series.colour(), shape=series.shape(), tooltip=tips))
    return finish(alt.layer(*layers).properties(height=23 * len(gains)), title, names if paper else [])


def scatter_plot(
    points: Mapping[str, tuple[float, Estimate]], title: str, *, x_label: str, y_label: str = ACCURACY
) -> Spec:
    """Describe a mark with a vertical interval for each name: ``{name: (x, (y, low, high))}``."""
    require_libraries("a figure")
    import altair as alt

    names = list(points)
    data = [
        {
            "series": name,
            "x": x,
            "y": y[0],
            "low": y[1],
            "high": y[2],
            "text": interval_text(*y),
            "number": number(x, 2),
        }
        for name, (x, y) in points.items()
    ]
    series = Series(names)
    base = alt.Chart(alt.Data(values=data)).encode(
        x=alt.X("x:Q", title=x_label).scale(zero=True, nice=True).axis(tickCount=6),
        color=series.colour(),
        opacity=series.opacity(),
    )
    tips = [alt.Tooltip("series:N", title="method"), alt.Tooltip("text:N", title=y_label)]
    tips.append(alt.Tooltip("number:N", title=x_label.partition(",")[0]))
    y = alt.Y("y:Q", title=f"{y_label}, with 95 % interval").scale(zero=False, nice=True).axis(tickCount=6)
    marks = base.mark_point(filled=True, size=110).encode(y=y, shape=series.shape(), tooltip=tips)
    whiskers = base.mark_rule(strokeWidth=1.5).encode(y="low:Q", y2="high:Q")
    chart = alt.layer(whiskers, marks.add_params(series.pick, zoom()))
    return finish(chart.properties(height=320), title, names)


def line_plot(
    curves: Mapping[str, Curve],
    title: str,
    *,
    x_label: str = "",
    y_label: str = ACCURACY,
    ticks: Sequence[float] = (),
    limits: tuple[float | None, float | None] = (None, None),
    styles: Mapping[str, Style] | None = None,
    rules: Sequence[Rule] = (),
) -> Spec:
    """Describe lines with marks and bands; ``ticks`` makes the horizontal axis logarithmic with these ticks."""
    require_libraries("a figure")
    series = Series(list(curves), styles)
    panel = Panel("", curves, x_label, y_label, limits, rules)
    chart = lines_of(panel, series, ticks=ticks, params=[series.pick, zoom()])
    return finish(chart.properties(height=360), title, list(curves))


def line_panels(
    panels: Sequence[Panel],
    title: str,
    *,
    styles: Mapping[str, Style] | None = None,
    columns: int = 2,
    height: int = 200,
    filled: bool = False,
) -> Spec:
    """Describe line plots side by side with one legend; ``filled`` draws areas down to zero."""
    require_libraries("a figure")
    import altair as alt

    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    series = Series(names, styles)
    width = (WIDTH - 74 * columns) // columns
    charts = [
        lines_of(panel, series, marked=False, filled=filled, params=[] if place else [series.pick]).properties(
            title=alt.TitleParams(panel.title, fontSize=12, fontWeight="normal", offset=4), width=width, height=height
        )
        for place, panel in enumerate(panels)
    ]
    chart = alt.concat(*charts, columns=columns).resolve_scale(color="shared")
    return finish(chart, title, names, panel=150 if filled else 260, columns=columns)
