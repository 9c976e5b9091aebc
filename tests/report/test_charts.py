import itertools
import math
import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from ttc.report import Chart, Panels, Rule, bar_chart, dot_chart, line_chart, scatter_chart
from ttc.report.axes import linear, logarithmic
from ttc.report.drawing import Drawing, Outline, Text, text_width
from ttc.report.labels import lifted, spread
from ttc.report.palette import STYLES, style

METHODS = ("SOURCE", "NORM", "T3A", "ETA", "TIPI", "TENT", "TTC")
CORRUPTIONS = ("gaussian_noise", "elastic_transform", "jpeg_compression", "average")
SIZES = (1, 2, 4, 8, 16, 32, 64, 100, 200)


def every_kind() -> dict[str, Chart | Panels]:
    rows = {
        corruption: {method: 40 + 7 * place + row for place, method in enumerate(METHODS)}
        for row, corruption in enumerate(CORRUPTIONS)
    }
    lines = {method: [(n, 10 + 70 * (1 - 1 / (n + place))) for n in SIZES] for place, method in enumerate(METHODS, 1)}
    curve = line_chart(
        lines,
        "Average accuracy against batch size, with and without gradient accumulation",
        x_label="batch size",
        log=True,
        ticks=SIZES,
        dashed=["TENT"],
        bands={"TTC": [(y - 2, y + 2) for _, y in lines["TTC"]]},
        rules=[Rule("y", 10, "chance")],
    )
    density = line_chart({"TENT": [(0, 0.1), (1, 0.9), (2, 0.0)]}, "channel 3", filled=True, y_label="", low=0)
    return {
        "dots": dot_chart(rows, "Accuracy on each corruption", rules=[Rule("x", 50, "a rule")]),
        "lines": curve,
        "bars": bar_chart({"tent": 81.5, "ttc": 82.5}, "Components", beside={"paper": {"tent": 80.0}}),
        "gains": bar_chart({"fuse=probabilities": -1.5, "ss=False": 0.4}, "Gains", digits=2, sign=True),
        "scatter": scatter_chart(
            {method: (1.0 + place, 60.0 + place) for place, method in enumerate(METHODS)}, "Cost", x_label="ms"
        ),
        "panels": Panels("Density of features", (density,) * 5),
    }


def box(text: Text) -> tuple[float, float, float, float]:
    width = text_width(text.text, text.size)
    left = text.x - {"start": 0, "middle": width / 2, "end": width}[text.anchor]
    return left, text.y - text.size / 2, left + width, text.y + text.size / 2


@pytest.mark.parametrize("width", [340, 720])
@pytest.mark.parametrize("kind", every_kind())
def test_nothing_is_cut_off_and_no_two_texts_touch(kind: str, width: float) -> None:
    drawing = every_kind()[kind].drawing(width)
    texts = [(shape.text, box(shape)) for shape in drawing.shapes if isinstance(shape, Text)]
    for text, (left, top, right, bottom) in texts:
        assert left >= 0, text
        assert top >= 0, text
        assert right <= width + 1, text
        assert bottom <= drawing.height, text
    for (one, a), (other, b) in itertools.combinations(texts, 2):
        apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] + 1 or b[3] <= a[1] + 1
        assert apart, f"'{one}' lies on '{other}'"
    for shape in drawing.shapes:
        if isinstance(shape, Outline):
            assert all(0 <= x <= width and 0 <= y <= drawing.height for x, y in shape.points)


@pytest.mark.parametrize("kind", every_kind())
def test_svg_is_xml_that_takes_its_colours_from_the_theme(kind: str) -> None:
    chart = every_kind()[kind]
    root = ElementTree.fromstring(chart.svg())
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == chart.title
    inline = chart.svg(alone=False)
    assert "<style>" not in inline
    assert "prefers-color-scheme:dark" in chart.svg()
    assert "var(--ink,#1b1f24)" in inline
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", inline)


def test_text_is_escaped() -> None:
    chart = scatter_chart({"a<b&c": (1, 2)}, 'x "y"', x_label="<script>")
    ElementTree.fromstring(chart.svg())
    assert "<script>" not in chart.svg()


def test_png_has_two_pixels_a_unit_and_both_themes(tmp_path: Path) -> None:
    chart = every_kind()["dots"]
    chart.png(tmp_path / "light.png", 360)
    chart.png(tmp_path / "dark.png", 360, dark=True)
    for name, surface in {"light": (255, 255, 255), "dark": (21, 24, 28)}.items():
        with Image.open(tmp_path / f"{name}.png") as image:
            assert image.width == 720
            assert image.height == 2 * chart.drawing(360).height
            assert image.getpixel((0, 0)) == surface
            colours = {colour for _, colour in image.getcolors(1 << 20) or []}
            assert (0xD5, 0x5E, 0x00) in colours, "TTC's colour"


def test_a_method_looks_the_same_everywhere_and_like_no_other() -> None:
    assert style("ttc").strong
    assert not any(style(name).strong for name in METHODS if name != "TTC")
    assert len({style(name).colour for name in METHODS}) == len({style(name).marker for name in METHODS}) == 7
    assert style("TENT (batch size = 1)") == STYLES["tent"]
    assert style("something", 3) == style("else", 3) != style("else", 4)


def test_a_missing_value_breaks_the_line() -> None:
    chart = line_chart({"TTC": [(0, 1.0), (1, math.nan), (2, 3.0)]}, "gap", low=0, high=4)
    lines = [shape for shape in chart.drawing().shapes if isinstance(shape, Outline) and shape.note == "TTC"]
    assert [len(line.points) for line in lines] == [1, 1]


@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=20))
@settings(max_examples=60)
def test_linear_axes_hold_their_values_with_few_round_ticks(values: Sequence[float]) -> None:
    axis = linear(values)
    assert axis.low <= min(values) + 1e-6
    assert axis.high >= max(values) - 1e-6
    assert 2 <= len(axis.ticks) <= 9
    assert len({text for _, text in axis.ticks}) == len(axis.ticks)
    for value, text in axis.ticks:
        assert float(text.replace("−", "-")) == pytest.approx(value, abs=1e-9 + 1e-6 * abs(value))


def test_a_logarithmic_axis_has_equal_steps_for_equal_ratios() -> None:
    axis = logarithmic([1, 100])
    assert [axis.share(value) for value in (1, 10, 100)] == pytest.approx([0, 0.5, 1])
    assert [value for value, _ in axis.ticks] == [1, 10, 100]
    assert logarithmic([5, 5]).share(5) == pytest.approx(0.5)


@given(st.lists(st.floats(0, 300), max_size=12))
@settings(max_examples=60)
def test_labels_are_spread_in_order_and_apart(wanted: list[float]) -> None:
    found = spread(wanted, 14, 0, 300)
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    for above, below in itertools.pairwise(order):
        assert found[below] - found[above] >= 14 - 1e-6
    assert all(-1e-6 <= place <= 300 + 1e-6 for place in found)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=5))
def test_up_to_five_marks_on_a_row_never_hide_each_other(places: list[int]) -> None:
    shifts = lifted(places, 11, 7)
    assert shifts[0] == 0
    for (a, up), (b, down) in itertools.combinations(zip(places, shifts, strict=True), 2):
        assert abs(a - b) >= 11 or abs(up - down) >= 7


def test_a_drawing_without_shapes_is_a_page(tmp_path: Path) -> None:
    Drawing(10, 20, ()).png(tmp_path / "empty.png")
    with Image.open(tmp_path / "empty.png") as image:
        assert image.size == (20, 40)
