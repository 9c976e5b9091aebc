"""The kinds of chart the reports use, from plain data."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ttc.report.axes import categories, linear, logarithmic
from ttc.report.chart import Chart
from ttc.report.drawing import Drawing, Point, moved
from ttc.report.labels import number
from ttc.report.marks import Rule, Series
from ttc.report.palette import Style, style


def dot_chart(
    rows: Mapping[str, Mapping[str, float]],
    title: str,
    *,
    label: str = "accuracy (%)",
    low: float | None = None,
    high: float | None = None,
    rules: Sequence[Rule] = (),
    values: Sequence[str] = (),
) -> Chart:
    """A row for each key of ``rows`` and on it a mark for each method: ``{corruption: {method: accuracy}}``.

    >>> chart = dot_chart({"fog": {"TENT": 70.0, "TTC": 75.0}}, "Accuracy")
    >>> [series.name for series in chart.series]
    ['TENT', 'TTC']
    """
    names = list(dict.fromkeys(method for row in rows.values() for method in row))
    series = []
    for place, name in enumerate(names):
        there = [(index, key, row[name]) for index, (key, row) in enumerate(rows.items()) if name in row]
        points = tuple((value, float(index)) for index, _, value in there)
        notes = tuple(f"{name}, {readable(key)}: {value:.1f}" for _, key, value in there)
        series.append(Series(name, points, style(name, place), "dots", notes=notes))
    every = [value for row in rows.values() for value in row.values()] + [rule.value for rule in rules]
    x = linear(every, label, low=low, high=high)
    return Chart(
        title, x, categories([readable(key) for key in rows]), tuple(series), tuple(rules), values=tuple(values)
    )


def line_chart(
    series: Mapping[str, Sequence[Point]],
    title: str,
    *,
    x_label: str = "",
    y_label: str = "accuracy (%)",
    log: bool = False,
    ticks: Sequence[float] = (),
    low: float | None = None,
    high: float | None = None,
    dashed: Iterable[str] = (),
    bands: Mapping[str, Sequence[Point]] | None = None,
    rules: Sequence[Rule] = (),
    styles: Mapping[str, Style] | None = None,
    marked: bool = True,
    filled: bool = False,
    height: float = 300,
) -> Chart:
    """Lines of (x, y) points by name; ``bands`` has (low, high) for each point, ``dashed`` names the broken lines."""
    broken, around = set(dashed), bands or {}
    drawn = tuple(
        Series(
            name,
            tuple(points),
            (styles or {}).get(name) or style(name, place),
            "area" if filled else "line",
            dashed=name in broken,
            marked=marked,
            spread=tuple(around.get(name, ())),
            notes=tuple(f"{name}: {y:.4g} at {x:g}" for x, y in points),
        )
        for place, (name, points) in enumerate(series.items())
    )
    xs = [x for points in series.values() for x, _ in points]
    ys = [y for points in series.values() for _, y in points] + [rule.value for rule in rules if rule.axis == "y"]
    ys += [end for ends in around.values() for pair in ends for end in pair]
    x = logarithmic(xs, x_label, ticks=ticks) if log else linear(xs, x_label, low=min(xs), high=max(xs))
    y = linear(ys, y_label, low=low, high=high)
    return Chart(title, x, y, drawn, tuple(rules), direct=not filled, height=height)


def bar_chart(
    values: Mapping[str, float],
    title: str,
    *,
    label: str = "accuracy (%)",
    spread: Mapping[str, Point] | None = None,
    beside: Mapping[str, Mapping[str, float]] | None = None,
    strong: Iterable[str] = ("ttc",),
    name: str = "ours",
    rules: Sequence[Rule] = (),
    digits: int = 1,
    sign: bool = False,
) -> Chart:
    """A bar for each key with its number; ``beside`` adds marks of other series, ``{"paper": {key: value}}``."""
    keys, shown = list(values), {text.lower() for text in strong}
    around = spread or {}
    texts = tuple(number(values[key], digits, sign=sign) for key in keys)
    bars = []
    for wanted, colour in ((False, Style("#0072b2")), (True, Style("#d55e00", strong=True))):
        rows = [(row, key) for row, key in enumerate(keys) if (key.lower() in shown) == wanted]
        points = tuple((values[key], float(row)) for row, key in rows)
        ends = tuple(around.get(key, (values[key], values[key])) for _, key in rows) if spread else ()
        notes = tuple(f"{readable(key)}: {texts[row]}" for row, key in rows)
        bars += [Series(name, points, colour, "bars", spread=ends, notes=notes)] if rows else []
    others = []
    for place, (other, given) in enumerate((beside or {}).items()):
        there = tuple((given[key], float(row)) for row, key in enumerate(keys) if key in given)
        others.append(Series(other, there, Style("ink", ("diamond", "cross", "plus")[place % 3]), "dots"))
    reach = [0.0, *values.values(), *(end for pair in around.values() for end in pair)]
    reach += [x for series in others for x, _ in series.points] + [rule.value for rule in rules]
    names = categories([readable(key) for key in keys])
    chart = Chart(title, linear(reach, label), names, (*bars, *others), tuple(rules), values=texts)
    return replace(chart, legend=bool(others))


def scatter_chart(
    points: Mapping[str, Point], title: str, *, x_label: str, y_label: str = "accuracy (%)", log: bool = False
) -> Chart:
    """A named mark for each (x, y)."""
    xs, ys = [x for x, _ in points.values()], [y for _, y in points.values()]
    series = tuple(
        Series(name, (point,), style(name, place), "dots", notes=(f"{name}: {point[0]:.4g}, {point[1]:.4g}",))
        for place, (name, point) in enumerate(points.items())
    )
    low, high = min(xs), max(xs)
    x = logarithmic([low / 1.3, high * 1.6], x_label) if log else linear([*xs, 0.0, high * 1.08], x_label)
    margin = 0.06 * (max(ys) - min(ys))
    return Chart(title, x, linear([min(ys) - margin, max(ys) + margin], y_label), series, direct=True)


@dataclass(frozen=True)
class Panels:
    """Several charts side by side, in as many columns as fit."""

    title: str
    charts: tuple[Chart, ...]
    least: float = 230  # the width below which a panel is put into the next row

    def svg(self, width: float = 720, *, alone: bool = True) -> str:
        """The panels as SVG text."""
        return self.drawing(width).svg(alone=alone)

    def png(self, path: Path, width: float = 720, *, dark: bool = False) -> None:
        """The panels as a PNG file."""
        self.drawing(width).png(path, dark=dark)

    def drawing(self, width: float = 720) -> Drawing:
        """The panels laid out at ``width``, under one title and one legend."""
        columns = max(1, min(len(self.charts), int(width // self.least)))
        every = {series.name: series for chart in self.charts for series in chart.series}
        head = replace(self.charts[0], title=self.title, series=tuple(every.values()))
        shapes, top = head.heading(width, legend=len(every) > 1)
        tallest = 0.0
        for place, chart in enumerate(self.charts):
            if place and place % columns == 0:
                top, tallest = top + tallest + 6, 0.0
            drawing = replace(chart, legend=False, direct=False, title_size=12.0).drawing(width / columns)
            shapes += moved(drawing.shapes, (place % columns) * width / columns, top)
            tallest = max(tallest, drawing.height)
        return Drawing(width, math.ceil(top + tallest), tuple(shapes), self.title)


def readable(name: str) -> str:
    """A corruption's name as people write it.

    >>> readable("jpeg_compression")
    'JPEG compression'
    """
    return name if "=" in name else name.replace("_", " ").replace("jpeg", "JPEG")
