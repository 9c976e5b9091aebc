"""A chart, described once in data and drawn at any width: on a page, on a phone, in a file."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ttc.report.axes import Axis
from ttc.report.drawing import Drawing, Outline, Point, Shape, Text, text_width
from ttc.report.labels import beside, flowed, lifted, spread, wrapped
from ttc.report.marks import Rule, Series, key, mark

SIZE, SMALL = 12.0, 11.0
NARROW = 480.0  # the width below which labels move to the legend


@dataclass(frozen=True)
class Chart:
    """Series on two axes; ``direct`` writes names beside the data instead of into a legend where there is room."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    rules: tuple[Rule, ...] = ()
    direct: bool = False
    legend: bool = True
    values: tuple[str, ...] = ()  # a number for each category, in a column at the right
    height: float = 300.0  # of the plot, where the rows of categories do not decide it
    title_size: float = 14.0

    def svg(self, width: float = 720, *, alone: bool = True) -> str:
        """The chart as SVG text."""
        return self.drawing(width).svg(alone=alone)

    def png(self, path: Path, width: float = 720, *, dark: bool = False) -> None:
        """The chart as a PNG file with two pixels a unit of ``width``."""
        self.drawing(width).png(path, dark=dark)

    def drawing(self, width: float = 720) -> Drawing:
        """The chart laid out at ``width``."""
        direct = self.direct and width >= NARROW
        shapes, top = self.heading(width, legend=self.legend and not direct and len(self.series) > 1)
        if self.y.label and not self.y.categories:
            shapes.append(Text(8, top + 8, self.y.label, SMALL, colour="muted"))
            top += 20
        above = any(rule.axis == "x" and rule.label for rule in self.rules)
        frame = self._frame(width, top + (18 if above else 8), direct)
        shapes += [*frame.furniture(self), *frame.data(self), *(frame.rule_name(rule) for rule in self.rules)]
        if direct:
            shapes += frame.names(self)
        bottom = frame.bottom + 22 + (18 if self.x.label else 0)
        return Drawing(width, math.ceil(bottom + 4), tuple(shapes), self.title)

    @property
    def row(self) -> float:
        """The height of a category's row: more where many marks may have to make way for each other."""
        return 38.0 if sum(series.kind == "dots" for series in self.series) > 3 else 24.0

    def heading(self, width: float, *, legend: bool) -> tuple[list[Shape], float]:
        """The title and the legend, and the height they take."""
        shapes: list[Shape] = []
        top = 8.0
        size = self.title_size
        for line in wrapped(self.title, size, width - 16):
            shapes.append(Text(8, top + size / 2, line, size, bold=True))
            top += size + 5
        if legend:
            listed = list({series.name: series for series in reversed(self.series)}.values())[::-1]
            places, height = flowed([series.name for series in listed], SIZE, width - 16)
            for series, (x, y) in zip(listed, places, strict=True):
                shapes += key(series, 8 + x, top + 8 + y)
                shapes.append(Text(8 + x + 22, top + 8 + y, series.name, SIZE, bold=series.style.strong))
            top += height
        return shapes, top

    def _frame(self, width: float, top: float, direct: bool) -> "Frame":
        names = max((text_width(text, SIZE, bold=text == "average") for _, text in self.y.ticks), default=0.0)
        left = min(8 + names + 10, 0.5 * width)
        right = width - 16
        if self.values:
            right -= max(text_width(text, SMALL) for text in self.values) + 6
        if direct and any(series.kind == "line" for series in self.series):
            right = width - 20 - max(text_width(series.name, SIZE, bold=series.style.strong) for series in self.series)
        height = self.row * len(self.y.ticks) if self.y.categories else min(self.height, 0.8 * width)
        return Frame(self.x, self.y, left, top, right, top + height)


@dataclass(frozen=True)
class Frame:
    """The rectangle that the data is drawn into."""

    x: Axis
    y: Axis
    left: float
    top: float
    right: float
    bottom: float

    def at(self, x: float, y: float) -> Point:
        """The place of a value."""
        share = self.y.share(y)
        return (
            self.left + self.x.share(x) * (self.right - self.left),
            self.top + (share if self.y.categories else 1 - share) * (self.bottom - self.top),
        )

    def furniture(self, chart: Chart) -> Iterator[Shape]:
        """The grid, the ticks' texts, the axis label, the rules and the column of values."""
        free = -math.inf
        for value, text in self.x.ticks:
            across = self.at(value, self.y.low)[0]
            yield Outline(((across, self.top), (across, self.bottom)), "grid")
            half = text_width(text, SMALL) / 2
            if across - half >= free:  # a tick without room keeps its line and loses its number
                yield Text(across, self.bottom + 12, text, SMALL, "middle", "muted")
                free = across + half + 4
        for row, (value, text) in enumerate(self.y.ticks):
            along = self.at(self.x.low, value)[1]
            yield Outline(((self.left, along), (self.right, along)), "grid")
            bold = self.y.categories and text == "average"
            size = SIZE if self.y.categories else SMALL
            yield Text(self.left - 8, along, text, size, "end", "ink" if self.y.categories else "muted", bold)
            if chart.values:
                room = max(text_width(number, SMALL) for number in chart.values)
                yield Text(self.right + 12 + room, along, chart.values[row], SMALL, "end", "ink", bold)
        if self.x.label:
            yield Text((self.left + self.right) / 2, self.bottom + 30, self.x.label, SMALL, "middle", "muted")
        for rule in chart.rules:
            yield from self._rule(rule)

    def _rule(self, rule: Rule) -> Iterator[Shape]:
        if rule.axis == "x":
            across = self.at(rule.value, self.y.low)[0]
            yield Outline(((across, self.top - 4), (across, self.bottom)), "muted", width=1.5, dashed=True)
        else:
            along = self.at(self.x.low, rule.value)[1]
            yield Outline(((self.left, along), (self.right, along)), "muted", width=1.5, dashed=True)

    def rule_name(self, rule: Rule) -> Text:
        """The name of a rule: above the chart, or at its right end on top of whatever is there."""
        if rule.axis == "y":
            along = self.at(self.x.low, rule.value)[1]
            return Text(self.right - 4, along - 8, rule.label, SMALL, "end", "muted", halo=True)
        half = text_width(rule.label, SMALL) / 2
        across = self.at(rule.value, self.y.low)[0]
        middle = min(max(across, self.left + half), self.right - half)
        return Text(middle, self.top - 11, rule.label, SMALL, "middle", "muted")

    def data(self, chart: Chart) -> Iterator[Shape]:
        """The marks: areas and bands below, then lines, then points, the strong series on top of its kind."""
        ordered = sorted(chart.series, key=lambda series: series.style.strong)
        for series in ordered:
            yield from self._areas(series)
            yield from self._bars(series)
        for series in ordered:
            if series.kind == "line" or series.kind == "area":
                colour, width = series.style.colour, 2.8 if series.style.strong and series.kind == "line" else 1.8
                for run in _runs(series.points):
                    placed = tuple(self.at(x, y) for x, y in run)
                    yield Outline(placed, colour, width=width, dashed=series.dashed, note=series.name)
        lifts = self._lifts(ordered)
        for series in ordered:
            if series.kind == "dots":
                yield from self._whiskers(series)
            if series.kind == "dots" or (series.kind == "line" and series.marked):
                for index, (x, y) in enumerate(series.points):
                    if math.isfinite(x) and math.isfinite(y):
                        across, along = self.at(x, y)
                        note = series.notes[index] if series.notes else f"{series.name}: {y:.4g}"
                        yield mark((across, along + lifts.get((series.name, index), 0.0)), series.style, note=note)

    def _lifts(self, ordered: list[Series]) -> dict[tuple[str, int], float]:
        """How far up or down the marks of a category move so that none hides another; the strong one stays."""
        found: dict[tuple[str, int], float] = {}
        if not self.y.categories:
            return found
        for row, _ in self.y.ticks:
            there = {
                (series.name, index): self.at(x, y)[0]
                for series in reversed(ordered)
                for index, (x, y) in enumerate(series.points)
                if series.kind == "dots" and y == row and math.isfinite(x)
            }
            found |= dict(zip(there, lifted(list(there.values()), 11, 7), strict=True))
        return found

    def _areas(self, series: Series) -> Iterator[Shape]:
        if series.kind == "line" and series.spread:
            low = [self.at(x, ends[0]) for (x, _), ends in zip(series.points, series.spread, strict=True)]
            high = [self.at(x, ends[1]) for (x, _), ends in zip(series.points, series.spread, strict=True)]
            yield Outline((*low, *reversed(high)), fill=series.style.colour, opacity=0.18, closed=True)
        if series.kind == "area":
            (first, _), (last, _) = series.points[0], series.points[-1]
            outline = (*(self.at(x, y) for x, y in series.points), self.at(last, 0), self.at(first, 0))
            yield Outline(outline, fill=series.style.colour, opacity=0.16, closed=True)

    def _bars(self, series: Series) -> Iterator[Shape]:
        if series.kind != "bars":
            return
        for index, (x, y) in enumerate(series.points):
            (start, along), (end, _) = self.at(series.base, y), self.at(x, y)
            above, below = along - 7.5, along + 7.5
            corners = ((start, above), (end, above), (end, below), (start, below))
            note = series.notes[index] if series.notes else f"{series.name}: {x:.4g}"
            yield Outline(corners, fill=series.style.colour, closed=True, note=note)
        yield from self._whiskers(series)

    def _whiskers(self, series: Series) -> Iterator[Shape]:
        for (_, y), (low, high) in zip(series.points, series.spread, strict=False):
            (start, along), (end, _) = self.at(low, y), self.at(high, y)
            yield Outline(((start, along), (end, along)), "ink", width=1.4)

    def names(self, chart: Chart) -> Iterator[Shape]:
        """The names of lines at their ends, and of points beside them, moved apart where they would touch."""
        lines = [series for series in chart.series if series.kind == "line" and series.points]
        ends = [self.at(*series.points[-1])[1] for series in lines]
        for series, along in zip(lines, spread(ends, SIZE + 2, self.top, self.bottom), strict=True):
            yield Text(self.right + 10, along, series.name, SIZE, colour=series.style.colour, bold=series.style.strong)
        dots = [series for series in chart.series if series.kind == "dots" and series.points]
        places = [self.at(*series.points[0]) for series in dots]
        within = (self.left, self.top, self.right, self.bottom)
        boxes = beside(places, [text_width(series.name, SIZE) for series in dots], SIZE, within)
        for series, (x, y) in zip(dots, boxes, strict=True):
            yield Text(x, y, series.name, SIZE, bold=series.style.strong)


def _runs(points: tuple[Point, ...]) -> Iterator[tuple[Point, ...]]:
    """A line cut where a value is missing."""
    run: list[Point] = []
    for point in (*points, (math.nan, math.nan)):
        if math.isfinite(point[1]):
            run.append(point)
        elif run:
            yield tuple(run)
            run = []
