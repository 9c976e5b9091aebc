"""Plots as files: SVG that follows the reader's colour scheme, PNG and PDF."""

from pathlib import Path
from textwrap import wrap
from typing import Any, Literal, cast, get_args

from ttc.errors import TTCError
from ttc.report.encodings import WIDTH
from ttc.report.findings import Spec
from ttc.report.libraries import require_libraries
from ttc.report.palette import FILE_FONT, ROLES, vega_config

Kind = Literal["svg", "png", "pdf"]


def kind_of(path: Path) -> Kind:
    """Return the kind of figure that a file name asks for.

    Raises:
        TTCError: The name ends otherwise.

    >>> kind_of(Path("figure.pdf"))
    'pdf'
    """
    ending = path.suffix.lower().removeprefix(".")
    if ending not in get_args(Kind):
        raise TTCError(f"a figure is written as .svg, .png or .pdf, got '{path.name}'; choose another name")
    return cast(Kind, ending)


def render(spec: Spec, kind: Kind, *, dark: bool = False) -> bytes:
    """Render a plot.

    Args:
        spec: A Vega-Lite specification of :mod:`ttc.report.plots`.
        kind: ``svg``, ``png`` (two pixels per unit) or ``pdf``.
        dark: Use the colours of the dark theme.

    Returns:
        The bytes of the file.
    """
    require_libraries("a figure")
    import vl_convert

    themed = {**spec, "title": wrap(spec["title"], 84), "config": _config(spec, dark)}
    if kind == "png":
        return vl_convert.vegalite_to_png(themed, scale=2)
    if kind == "pdf":
        return vl_convert.vegalite_to_pdf(themed)
    return _follow_scheme(vl_convert.vegalite_to_svg(themed)).encode()


def legend_columns(longest: int, width: float) -> int:
    """Return how many legend entries fit side by side.

    Args:
        longest: The characters of the longest name.
        width: The width in pixels.

    >>> legend_columns(4, 720), legend_columns(24, 340)
    (9, 1)
    """
    return max(1, int(width // (46 + 7.2 * longest)))


def _config(spec: Spec, dark: bool) -> dict[str, Any]:
    config = vega_config(lambda role: ROLES[role][dark], FILE_FONT)
    config["background"] = ROLES["surface"][dark]
    config["padding"] = 8
    config["legend"]["columns"] = legend_columns(spec["usermeta"]["fit"]["legend"], WIDTH)
    return config


def _follow_scheme(svg: str) -> str:
    """Let the light colours of an SVG turn dark where the reader's system is dark."""
    rules = "".join(
        f'[fill="{light}"]{{fill:{dark}}}[stroke="{light}"]{{stroke:{dark}}}' for light, dark in ROLES.values()
    )
    start = svg.index(">", svg.index("<svg")) + 1
    return f"{svg[:start]}<style>@media (prefers-color-scheme:dark){{{rules}}}</style>{svg[start:]}\n"
