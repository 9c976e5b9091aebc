import io
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from tests.report.made import KINDS, METHODS
from ttc.errors import TTCError
from ttc.report.encodings import WIDTH
from ttc.report.palette import ROLES
from ttc.report.plots import scatter_plot
from ttc.report.rendering import kind_of, render


@pytest.mark.parametrize("kind", KINDS)
def test_svg_is_xml_that_follows_the_colour_scheme_and_needs_no_network(kind: str) -> None:
    svg = render(KINDS[kind](), "svg").decode()
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert not re.search(r"https?://(?!www\.w3\.org/)", svg)
    assert "prefers-color-scheme:dark" in svg
    for light, dark in ROLES.values():
        assert f'[fill="{light}"]{{fill:{dark}}}' in svg
    assert KINDS[kind]()["title"] in "".join(root.itertext())


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_cut_off(kind: str) -> None:
    """The outermost pixels are all background."""
    with Image.open(io.BytesIO(render(KINDS[kind](), "png"))) as image:
        assert 1200 <= image.width <= 1500
        pixels = image.convert("RGB")
        edges = [pixels.crop(box).getcolors() for box in (
            (0, 0, image.width, 4), (0, image.height - 4, image.width, image.height),
            (0, 0, 4, image.height), (image.width - 4, 0, image.width, image.height),
        )]  # fmt: skip
    assert all(edge is not None and [colour for _, colour in edge] == [(255, 255, 255)] for edge in edges)


def test_png_has_both_themes() -> None:
    for dark, surface in ((False, (255, 255, 255)), (True, (21, 24, 28))):
        with Image.open(io.BytesIO(render(KINDS["dots"](), "png", dark=dark))) as image:
            colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 24) or []}
        assert surface in colours
        assert (0xD5, 0x5E, 0x00) in colours, "TTC's colour"


def test_pdf_is_for_papers() -> None:
    assert render(KINDS["gains"](), "pdf").startswith(b"%PDF")


def test_the_legend_names_every_series() -> None:
    text = render(KINDS["lines"](), "svg").decode()
    for method in METHODS:
        assert f">{method}</text>" in text


def test_a_long_title_is_wrapped() -> None:
    title = " ".join(["a long title"] * 12)
    with Image.open(io.BytesIO(render({**KINDS["dots"](), "title": title}, "png"))) as image:
        assert image.width == 2 * WIDTH
        right = image.convert("RGB").crop((image.width - 8, 0, image.width, image.height)).getcolors()
    assert right is not None
    assert len(right) == 1


def test_text_is_escaped() -> None:
    svg = render(scatter_plot({"a<b&c": (1, (2, 1, 3))}, 'x "y"', x_label="<script>"), "svg").decode()
    ElementTree.fromstring(svg)
    assert "<script>" not in svg


def test_another_kind_is_rejected() -> None:
    with pytest.raises(TTCError, match=r"written as \.svg, \.png or \.pdf, got 'x\.jpeg'"):
        kind_of(Path("x.jpeg"))
