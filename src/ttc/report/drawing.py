"""Shapes on a page, written as SVG that follows the page's theme, or painted as PNG."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from itertools import pairwise
from pathlib import Path

from PIL import Image, ImageColor, ImageDraw, ImageFont

from ttc.files import atomic
from ttc.report.palette import ROLES

Point = tuple[float, float]
FAMILY = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_SHIFT = {"start": 0.0, "middle": 0.5, "end": 1.0}
PLAIN = str.maketrans(  # what Pillow's own font has no signs for
    {"−": "-", "–": "-", "×": "x", "²": "2", "≤": "<=", "→": "to"}
    | {"κ": "kappa", "λ": "lambda", "σ": "sigma", "ε": "epsilon"}
)
_PIXELS, _FINER = 2, 2  # a PNG has twice the pixels of the page, painted twice as fine and averaged


@dataclass(frozen=True)
class Outline:
    """A line through points, or the area inside them when ``fill`` is given; colours are hex or a role."""

    points: tuple[Point, ...]
    stroke: str | None = None
    fill: str | None = None
    width: float = 1.0
    opacity: float = 1.0
    dashed: bool = False
    closed: bool = False
    note: str = ""  # shown while the pointer rests on it


@dataclass(frozen=True)
class Text:
    """A line of text whose middle height is at ``y``."""

    x: float
    y: float
    text: str
    size: float = 12.0
    anchor: str = "start"
    colour: str = "ink"
    bold: bool = False
    halo: bool = False  # a rim of the page's colour, for text that lies on lines


Shape = Outline | Text


@dataclass(frozen=True)
class Drawing:
    """Shapes, later ones on top, on a page of ``width`` by ``height``."""

    width: float
    height: float
    shapes: tuple[Shape, ...]
    title: str = ""

    def svg(self, *, alone: bool = True) -> str:
        """The drawing as SVG; ``alone`` brings its own light and dark theme, else the surrounding page's is used."""
        size = f'viewBox="0 0 {_short(self.width)} {_short(self.height)}"'
        if alone:
            size += f' width="{_short(self.width)}" height="{_short(self.height)}"'
        parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(self.title)}">']
        if alone:
            parts.append(f"<style>{theme('svg')}svg{{background:var(--surface)}}</style>")
        parts.append(f'<g font-family="{FAMILY}" stroke-linecap="round" stroke-linejoin="round">')
        parts += [_svg_text(shape) if isinstance(shape, Text) else _svg_path(shape) for shape in self.shapes]
        return "\n".join([*parts, "</g>", "</svg>"]) + "\n"

    def png(self, path: Path, *, dark: bool = False) -> None:
        """Paint the drawing into ``path``, at two pixels a unit."""
        scale = _PIXELS * _FINER
        size = (round(self.width * scale), round(self.height * scale))
        image = Image.new("RGB", size, _rgb("surface", dark))
        for shape in self.shapes:
            if isinstance(shape, Text):
                _paint_text(image, shape, scale, dark)
            else:
                image = _painted(image, shape, scale, dark)
        smaller = (round(self.width * _PIXELS), round(self.height * _PIXELS))
        with atomic(path) as part:
            image.resize(smaller, Image.Resampling.BOX).save(part, format="PNG", optimize=True)


def moved(shapes: Iterable[Shape], dx: float, dy: float) -> list[Shape]:
    """The shapes, further right and down.

    >>> moved([Text(1, 2, "a")], 10, 20)[0].x
    11
    """
    found: list[Shape] = []
    for shape in shapes:
        if isinstance(shape, Text):
            found.append(replace(shape, x=shape.x + dx, y=shape.y + dy))
        else:
            found.append(replace(shape, points=tuple((x + dx, y + dy) for x, y in shape.points)))
    return found


def text_width(text: str, size: float, bold: bool = False) -> float:
    """The width of a line of text, with room for fonts that run wider than the one measured.

    >>> text_width("wide", 12) > text_width("w", 12) > 0
    True
    """
    return (1.32 if bold else 1.18) * _font(100).getlength(text.translate(PLAIN)) * size / 100


def theme(selector: str) -> str:
    """The rules that give the roles their colours: light, and dark where the reader's system is dark."""
    light, dark = ("".join(f"--{role}:{pair[side]};" for role, pair in ROLES.items()) for side in (0, 1))
    return f"{selector}{{{light}}}@media (prefers-color-scheme:dark){{{selector}{{{dark}}}}}"


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _paint(colour: str) -> str:
    return f"var(--{colour},{ROLES[colour][0]})" if colour in ROLES else colour


def _svg_path(shape: Outline) -> str:
    points = [f"{_short(x)} {_short(y)}" for x, y in shape.points]
    style = f"fill:{_paint(shape.fill) if shape.fill else 'none'}"
    if shape.stroke:
        style += f";stroke:{_paint(shape.stroke)};stroke-width:{_short(shape.width)}"
    if shape.dashed:
        style += ";stroke-dasharray:5 4"
    if shape.opacity < 1:
        style += f";opacity:{shape.opacity}"
    end = "Z" if shape.closed else ""
    inner = f"><title>{escape(shape.note)}</title></path>" if shape.note else "/>"
    return f'<path d="M{"L".join(points)}{end}" style="{style}"{inner}'


def _svg_text(shape: Text) -> str:
    weight = ";font-weight:600" if shape.bold else ""
    place = f'x="{_short(shape.x)}" y="{_short(shape.y + 0.35 * shape.size)}"'
    style = f"fill:{_paint(shape.colour)};font-size:{_short(shape.size)}px{weight}"
    if shape.halo:
        style += f";stroke:{_paint('surface')};stroke-width:4;paint-order:stroke"
    return f'<text {place} text-anchor="{shape.anchor}" style="{style}">{escape(shape.text)}</text>'


def _rgb(colour: str, dark: bool) -> tuple[int, ...]:
    return ImageColor.getrgb(ROLES[colour][dark] if colour in ROLES else colour)


def _paint_text(image: Image.Image, shape: Text, scale: int, dark: bool) -> None:
    text, font = shape.text.translate(PLAIN), _font(round(shape.size * scale))
    left = shape.x * scale - _SHIFT[shape.anchor] * font.getlength(text)
    top = (shape.y + 0.35 * shape.size) * scale
    draw, colour = ImageDraw.Draw(image), _rgb(shape.colour, dark)
    if shape.halo:
        rim = _rgb("surface", dark)
        draw.text((left, top), text, fill=rim, font=font, anchor="ls", stroke_width=2 * scale, stroke_fill=rim)
    weight = round(shape.size * scale / 45) if shape.bold else 0
    draw.text((left, top), text, fill=colour, font=font, anchor="ls", stroke_width=weight, stroke_fill=colour)


def _painted(image: Image.Image, shape: Outline, scale: int, dark: bool) -> Image.Image:
    layer = image.copy() if shape.opacity < 1 else image
    draw = ImageDraw.Draw(layer)
    points = [(x * scale, y * scale) for x, y in shape.points]
    if shape.fill:
        draw.polygon(points, fill=_rgb(shape.fill, dark))
    if shape.stroke:
        outline = [*points, points[0]] if shape.closed else points
        width, colour = max(1, round(shape.width * scale)), _rgb(shape.stroke, dark)
        for piece in _dashes(outline, 5 * scale, 4 * scale) if shape.dashed else [outline]:
            draw.line(piece, fill=colour, width=width, joint="curve")
    return Image.blend(image, layer, shape.opacity) if layer is not image else image


def _dashes(points: Sequence[Point], on: float, off: float) -> list[list[Point]]:
    """A line cut into dashes."""
    pieces: list[list[Point]] = []
    drawing, left = True, on
    for (x0, y0), (x1, y1) in pairwise(points):
        length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
        done = 0.0
        while done < length:
            step = min(left, length - done)
            ends = [(x0 + (x1 - x0) * at / length, y0 + (y1 - y0) * at / length) for at in (done, done + step)]
            if drawing:
                pieces.append(ends)
            done, left = done + step, left - step
            if left <= 1e-9:
                drawing, left = not drawing, off if drawing else on
    return pieces
