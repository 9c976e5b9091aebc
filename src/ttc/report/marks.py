"""What is drawn in a chart: series of points, rules, and the marks that tell series apart."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ttc.report.drawing import Outline, Point, Shape
from ttc.report.palette import Style


@dataclass(frozen=True)
class Series:
    """Points of one name, drawn as ``line``, ``dots``, ``bars`` (from ``base``) or ``area`` (down to ``base``).

    ``spread`` gives each point its interval: a band around a line, a whisker on dots and bars.
    """

    name: str
    points: tuple[Point, ...]
    style: Style
    kind: str = "line"
    dashed: bool = False
    marked: bool = True
    spread: tuple[Point, ...] = ()
    base: float = 0.0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule:
    """A line across the whole chart at a value of ``x`` or ``y``, such as chance."""

    axis: str
    value: float
    label: str = ""


def mark(at: Point, style: Style, note: str = "") -> Outline:
    """A point's mark: each series has its own shape, so that colour is never the only difference."""
    x, y = at
    size = 5.6 if style.strong else 4.4
    unit = {
        "circle": [(math.cos(turn * math.pi / 12), math.sin(turn * math.pi / 12)) for turn in range(24)],
        "square": [(-0.86, -0.86), (0.86, -0.86), (0.86, 0.86), (-0.86, 0.86)],
        "diamond": [(0, -1.2), (1.2, 0), (0, 1.2), (-1.2, 0)],
        "triangle": [(0, -1.15), (1.1, 0.8), (-1.1, 0.8)],
        "wedge": [(0, 1.15), (1.1, -0.8), (-1.1, -0.8)],
        "plus": [(a, b) for a, b in _PLUS],
        "cross": [((a - b) * 0.78, (a + b) * 0.78) for a, b in _PLUS],
    }[style.marker]
    points = tuple((x + size * a, y + size * b) for a, b in unit)
    return Outline(points, "surface", style.colour, width=1.0, closed=True, note=note)


_THIN, _LONG = 0.38, 1.2
_PLUS = (
    *((-_THIN, -_LONG), (_THIN, -_LONG), (_THIN, -_THIN), (_LONG, -_THIN), (_LONG, _THIN), (_THIN, _THIN)),
    *((_THIN, _LONG), (-_THIN, _LONG), (-_THIN, _THIN), (-_LONG, _THIN), (-_LONG, -_THIN), (-_THIN, -_THIN)),
)


def key(series: Series, x: float, y: float) -> Iterator[Shape]:
    """A series as the legend shows it."""
    colour = series.style.colour
    if series.kind in {"bars", "area"}:
        corners = ((x, y - 5), (x + 16, y - 5), (x + 16, y + 5), (x, y + 5))
        yield Outline(corners, fill=colour, opacity=1 if series.kind == "bars" else 0.5, closed=True)
    if series.kind == "line":
        yield Outline(((x, y), (x + 16, y)), colour, width=2, dashed=series.dashed)
    if series.kind == "dots" or (series.kind == "line" and series.marked):
        yield mark((x + 8, y), series.style)
