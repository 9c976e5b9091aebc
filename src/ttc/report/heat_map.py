"""Heat maps: numbers by row and column as coloured cells with the number in them, one panel above another."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ttc.report.encodings import WIDTH, finish
from ttc.report.findings import Spec
from ttc.report.formatting import number
from ttc.report.libraries import require_libraries

Cells = Mapping[str, Mapping[str, float | None]]  # {row: {column: value}}, None where there is no number
_LIGHT, _DARK = "#fefefe", "#101010"  # on a cell, whatever the theme: not the colours that follow it
_PER_ROW = 19  # pixels


class HeatPanel(NamedTuple):
    """One panel: coloured rows, and below them rows of plain numbers such as the cost.

    Args:
        title: The title.
        coloured: The numbers that decide a colour.
        plain: Further rows, without a colour.
        reasons: Why a number is missing, by (row, column), for the tooltip.
    """

    title: str
    coloured: Cells
    plain: Cells = MappingProxyType({})
    reasons: Mapping[tuple[str, str], str] = MappingProxyType({})


def heat_map(panels: list[HeatPanel], title: str, *, label: str, digits: int = 0) -> Spec:
    """Describe heat maps above one another with the same columns and the same colours.

    Args:
        panels: The panels, the first on top.
        title: The title.
        label: What the coloured numbers are, with their unit.
        digits: The decimals of the coloured numbers.

    Returns:
        A Vega-Lite specification; a missing number is a dash, with the reason in its tooltip.
    """
    require_libraries("a figure")
    import altair as alt

    known = [
        value for panel in panels for row in panel.coloured.values() for value in row.values() if value is not None
    ]
    domain = (min(known, default=0.0), max(known, default=1.0))
    charts = [_panel(panel, domain, label, digits, legend=not place) for place, panel in enumerate(panels)]
    return finish(alt.concat(*charts, columns=1), title, [], panel=260, columns=1)


def _panel(panel: HeatPanel, domain: tuple[float, float], label: str, digits: int, *, legend: bool) -> Any:
    import altair as alt

    rows = [*panel.coloured, *panel.plain]
    columns = list(dict.fromkeys(name for row in panel.coloured.values() for name in row))
    middle = domain[0] + 0.55 * (domain[1] - domain[0])
    data = []
    for row in rows:
        for column, value in (panel.coloured.get(row) or panel.plain.get(row) or {}).items():
            places = digits if row in panel.coloured else 1 if value is not None and value < 9.95 else 0
            text = "—" if value is None else number(value, places)
            reason = panel.reasons.get((row, column), "")
            data.append({"row": row, "column": column, "value": value, "text": text, "note": reason or text,
                         "coloured": row in panel.coloured and value is not None})  # fmt: skip
    base = alt.Chart(alt.Data(values=data)).encode(
        x=alt.X("column:N", title=None, sort=columns).axis(labelAngle=-50, labelFontSize=10.5, grid=False),
        y=alt.Y("row:N", title=None, sort=rows).axis(labelFontSize=10.5, grid=False),
        tooltip=[alt.Tooltip("column:N", title="method"), alt.Tooltip("row:N", title="on"),
                 alt.Tooltip("note:N", title=label)],
    )  # fmt: skip
    colour = alt.Color("value:Q", title=None).scale(scheme="viridis", domain=list(domain)).legend(
        alt.Legend(title=label, orient="top", gradientLength=160, tickCount=4) if legend else None
    )  # fmt: skip
    cells = base.transform_filter("datum.coloured").mark_rect().encode(color=colour)
    inner = base.transform_filter("datum.coloured").mark_text(fontSize=9.5)
    shade = alt.when(f"datum.value > {middle}").then(alt.value(_DARK)).otherwise(alt.value(_LIGHT))
    inner = inner.encode(text="text:N", color=shade)
    outer = base.transform_filter("!datum.coloured").mark_text(fontSize=9.5, style="ink").encode(text="text:N")
    return alt.layer(cells, inner, outer).properties(
        title=alt.TitleParams(panel.title, fontSize=12, fontWeight="normal", offset=4),
        width=WIDTH - 90,
        height=_PER_ROW * len(rows),
    )
