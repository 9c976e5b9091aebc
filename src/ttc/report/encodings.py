"""What the plots are made of: series told apart by colour and mark, lines with bands, rules, zoom."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ttc.report.findings import Spec
from ttc.report.formatting import interval_text
from ttc.report.palette import Style, style

if TYPE_CHECKING:
    import altair as alt

WIDTH = 720  # of a file, in pixels; the page fits a plot to its own width


class Rule(NamedTuple):
    """A dashed line across the whole plot at a value of ``x`` or ``y``, such as chance."""

    axis: str
    value: float
    label: str = ""


class Curve(NamedTuple):
    """A line through (x, y) points, with an interval (low, high) of each where known."""

    points: Sequence[tuple[float, float]]
    intervals: Sequence[tuple[float, float]] = ()


class Panel(NamedTuple):
    """One of several line plots side by side."""

    title: str
    curves: Mapping[str, Curve]
    x_label: str = ""
    y_label: str = ""
    limits: tuple[float | None, float | None] = (None, None)
    rules: Sequence[Rule] = ()


_STROKE: dict[str, Any] = {"symbolType": "stroke", "symbolStrokeWidth": 2.5, "symbolSize": 500}


class Series:
    """The encodings that tell series apart, and the legend selection ``pick`` that dims the others."""

    def __init__(self, names: Sequence[str], styles: Mapping[str, Style] | None = None) -> None:
        import altair as alt

        self.names = list(names)
        self.styles = [(styles or {}).get(name) or style(name, place) for place, name in enumerate(names)]
        self.pick = alt.selection_point(name="pick", fields=["series"], bind="legend", toggle="true")

    def _scaled(self, channel: Any, values: Iterable[Any]) -> Any:
        import altair as alt

        scale = alt.Scale(domain=self.names, range=list(values))
        return channel("series:N", scale=scale, sort=self.names, title=None)

    def colour(self, stroke: bool = False) -> Any:
        """Return the colours; ``stroke`` shows lines in the legend where there are no marks."""
        import altair as alt

        found = self._scaled(alt.Color, [one.colour for one in self.styles])
        return found.legend(**_STROKE) if stroke else found

    def shape(self) -> Any:
        """Return the mark shapes."""
        import altair as alt

        return self._scaled(alt.Shape, [one.shape for one in self.styles])

    def dash(self, marked: bool) -> Any:
        """Return the line patterns, in the legend only where no marks tell the series apart."""
        import altair as alt

        if marked:
            broken = [name for name, one in zip(self.names, self.styles, strict=True) if one.dashed]
            there = alt.FieldOneOfPredicate(field="series", oneOf=broken)
            return alt.when(there).then(alt.value([5, 4])).otherwise(alt.value([1, 0]))
        found = self._scaled(alt.StrokeDash, [[5, 4] if one.dashed else [1, 0] for one in self.styles])
        return found.legend(**_STROKE)

    def opacity(self, full: float = 1.0) -> Any:
        """Return the opacity: ``full`` for what the legend has selected."""
        import altair as alt

        return alt.when(self.pick).then(alt.value(full)).otherwise(alt.value(0.08 * full))


def lines_of(
    panel: Panel,
    series: Series,
    *,
    params: Sequence[Any],
    ticks: Sequence[float] = (),
    marked: bool = True,
    filled: bool = False,
) -> Any:
    """Describe the lines of a panel; ``ticks`` makes the horizontal axis logarithmic, ``filled`` adds areas."""
    import altair as alt

    data: list[dict[str, Any]] = []
    for name, curve in panel.curves.items():
        intervals = curve.intervals or [(y, y) for _, y in curve.points]
        for (at, value), (start, end) in zip(curve.points, intervals, strict=True):
            text = interval_text(value, start, end, 3 if filled or abs(value) < 3 else 1)
            point = {"series": name, "x": at, "y": value, "low": start, "high": end, "text": text, "at": f"{at:.4g}"}
            data.append(point)
    low, high = panel.limits
    x = alt.X("x:Q", title=panel.x_label or None).scale(zero=False, nice=False)
    if ticks:
        x = x.scale(type="log", nice=False).axis(values=list(ticks), format="d", labelOverlap=True)
    else:
        x = x.axis(tickCount=5)
    y = alt.Y("y:Q", title=panel.y_label or None).axis(tickCount=5)
    y = y.scale(
        alt.Scale(domainMin=alt.Undefined if low is None else low, domainMax=alt.Undefined if high is None else high)
    )
    base = alt.Chart(alt.Data(values=data)).encode(x=x, y=y, color=series.colour(stroke=not marked and not filled))
    tips = [alt.Tooltip("series:N", title=" "), alt.Tooltip("at:N", title=panel.x_label or "at"),
            alt.Tooltip("text:N", title=panel.y_label or panel.title)]  # fmt: skip
    layers: list[Any] = []
    if any(curve.intervals for curve in panel.curves.values()):
        layers.append(base.mark_area().encode(y="low:Q", y2="high:Q", opacity=series.opacity(0.2)))
    if filled:
        layers.append(base.mark_area().encode(y=y.stack(False), opacity=series.opacity(0.16)))
    lines = base.mark_line(strokeWidth=2).encode(opacity=series.opacity())
    layers.append(lines.encode(strokeDash=series.dash(marked)) if any(one.dashed for one in series.styles) else lines)
    marks = base.mark_point(filled=True, size=64 if marked else 90).encode(tooltip=tips)
    shown = marks.encode(shape=series.shape(), opacity=series.opacity())
    last = shown if marked else marks.encode(opacity=alt.value(0))  # unseen marks still carry the tooltips
    layers.append(last.add_params(*params) if params else last)
    found = alt.layer(*layers)  # nested, so that its data is stated once
    return alt.layer(found, *(part for rule in panel.rules for part in _rule(rule))) if panel.rules else found


def _rule(rule: Rule) -> "list[alt.Chart]":
    import altair as alt

    base = alt.Chart(alt.Data(values=[{"label": rule.label}]))
    line = base.mark_rule(style="muted", strokeDash=[4, 3], strokeWidth=1.4)
    if rule.axis == "y":
        text = base.mark_text(style="muted", align="right", baseline="bottom", dx=-4, dy=-3)
        name = text.encode(x=alt.XValue("width"), y=alt.datum(rule.value), text="label:N")
        return [line.encode(y=alt.datum(rule.value)), name]
    text = base.mark_text(style="muted", align="left", baseline="top", dx=6, dy=2)
    name = text.encode(x=alt.datum(rule.value), y=alt.value(0), text="label:N")
    return [line.encode(x=alt.datum(rule.value)), name]


def zoom() -> Any:
    """Pan with the mouse, zoom with Ctrl and the wheel: the page still scrolls, by wheel and by touch."""
    import altair as alt

    drag = "[pointerdown[event.pointerType == 'mouse'], window:pointerup] > window:pointermove!"
    wheel = "wheel![event.ctrlKey || event.metaKey]"
    return alt.selection_interval(name="zoom", bind="scales", translate=drag, zoom=wheel)


def finish(chart: Any, title: str, names: Sequence[str], *, panel: int = 0, columns: int = 1) -> Spec:
    """Return the specification of a chart, with what a renderer needs to fit it to a width."""
    import altair as alt

    fit = {"legend": max((len(name) for name in names), default=0), "panel": panel, "columns": columns}
    chart = chart.properties(title=title, usermeta={"fit": fit})
    if not panel:
        chart = chart.properties(width=WIDTH, autosize=alt.AutoSizeParams(type="fit-x", contains="padding"))
    spec: Spec = chart.to_dict()
    spec.pop("config", None)  # chosen by the renderer: files and the page have different fonts and colours
    return spec
