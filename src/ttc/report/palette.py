"""A colour and a mark for each method, the same in every figure: Okabe and Ito's colour-blind-safe colours."""

from collections.abc import Callable
from typing import Any, NamedTuple

# colours that follow the theme: on a light page, on a dark page
ROLES = {
    "ink": ("#1b1f24", "#e8eaed"),
    "muted": ("#5f6873", "#a3abb5"),
    "grid": ("#e3e6ea", "#353b43"),
    "surface": ("#ffffff", "#15181c"),
}
PAGE_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
FILE_FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
BLUE, ORANGE, GREY, SKY = "#0072b2", "#d55e00", "#8a8f98", "#56b4e9"
X_MARK = "M-1,-.6L-.6,-1L0,-.4L.6,-1L1,-.6L.4,0L1,.6L.6,1L0,.4L-.6,1L-1,.6L-.4,0Z"


class Style(NamedTuple):
    """The colour, the Vega mark shape and the line pattern of a series."""

    colour: str
    shape: str = "circle"
    dashed: bool = False


STYLES = {
    "ttc": Style(ORANGE, "circle"),
    "tent": Style(BLUE, "square"),
    "source": Style(GREY, X_MARK),
    "norm": Style("#009e73", "diamond"),
    "t3a": Style("#cc79a7", "triangle-up"),
    "eta": Style(SKY, "triangle-down"),
    "tipi": Style("#e69f00", "cross"),
    "norm + flip": Style("#4d9221", "triangle-left"),
    "tent + flip": Style("#7b61c4", "triangle-right"),
    "supervised": Style("#e69f00", "circle"),
}
_OTHERS = ("#7b61c4", "#a6761d", "#4d9221", "#b2182b", "#01a0b5", "#c994c7")
SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", X_MARK)


def style(name: str, place: int = 0) -> Style:
    """Return the style of a method, or for another series the one at ``place``.

    A method's variants keep its style: what follows ``-``, ``(``, ``,`` or a blank is ignored.

    >>> style("TTC") == style("ttc(bandwidth=2)")
    True
    >>> style("eta-paper").colour
    '#56b4e9'
    >>> style("TENT + flip") == style("tent+flip") != style("TENT")
    True
    """
    word = name.lower().replace("+flip", " + flip").replace("  ", " ")
    if word in STYLES:
        return STYLES[word]
    for end in "-(, +":
        word = word.partition(end)[0]
    return STYLES.get(word) or Style(_OTHERS[place % len(_OTHERS)], SHAPES[place % len(SHAPES)])


def vega_config(colour: Callable[[str], str], font: str) -> dict[str, Any]:
    """Return the Vega-Lite config of every figure.

    Args:
        colour: Turns a role of :data:`ROLES` into a colour: a hex code for files, a CSS variable for the page.
        font: The font family.
    """
    ink, muted, grid = colour("ink"), colour("muted"), colour("grid")
    return {
        "background": None,
        "font": font,
        "view": {"stroke": None},
        "title": {"anchor": "start", "frame": "bounds", "color": ink, "fontSize": 14, "fontWeight": 600, "offset": 12},
        "axis": {
            **{"gridColor": grid, "domain": False, "ticks": False, "labelColor": muted, "titleColor": muted},
            **{"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "labelPadding": 6},
            **{"titlePadding": 8, "labelLimit": 260},
        },
        "axisYBand": {"labelColor": ink},
        "legend": {
            **{"orient": "top", "direction": "horizontal", "title": None, "labelColor": ink, "labelFontSize": 12},
            **{
                "titleColor": ink,
                "labelLimit": 0,
                "symbolSize": 80,
                "symbolOpacity": 1,
                "columnPadding": 14,
                "rowPadding": 4,
                "offset": 10,
            },
        },
        "style": {"ink": {"color": ink}, "muted": {"color": muted}, "surface": {"color": colour("surface")}},
        "text": {"fontSize": 12},
    }
