"""The report in a real browser, made from a real run."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.report.chromium import Page, browser, executable

pytestmark = pytest.mark.skipif(
    executable() is None, reason="no Chromium is installed; install chromium, or name one with TTC_CHROMIUM"
)
OVERFLOW = """
(() => {
  const width = document.documentElement.clientWidth;
  const inside = (node) => node.closest('.scroll') !== null;
  const hidden = (node) => node.getClientRects().length === 0 || node.closest('.plot, .vg-tooltip') !== null;
  return [...document.querySelectorAll('body *')]
    .filter((node) => !inside(node) && !hidden(node) && node.getBoundingClientRect().right > width + 1)
    .map((node) => node.tagName + ' ' + node.textContent.slice(0, 60));
})()
"""
CUT_TEXT = """
[...document.querySelectorAll('.plot svg')].filter((svg) => svg.getClientRects().length).flatMap((svg) => {
  const page = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter((text) => {
    const box = text.getBoundingClientRect();
    return box.left < page.left - 1 || box.right > page.right + 1 || box.bottom > page.bottom + 1;
  }).map((text) => text.textContent);
})
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("chromium")) as page:
        yield page


@pytest.fixture
def page(shared: Page, finished: Path) -> Iterator[Page]:
    shared.open(finished / "report" / "report.html")
    shared.run("localStorage.clear()")
    shared.problems.clear()
    yield shared
    assert shared.problems == []


def test_it_opens_without_an_error(page: Page, finished: Path) -> None:
    page.open(finished / "report" / "report.html")
    assert page.run("document.querySelectorAll('section').length") >= 6
    lead = page.run("document.querySelector('#summary .lead').textContent")
    assert re.search(r"is best with|are level at", lead)


def test_a_table_is_sorted_by_a_click_and_back(page: Page) -> None:
    rows = "[...document.querySelector('#cifar10c table.sortable').tBodies[0].rows]"
    column, names = f"{rows}.map(r => Number(r.cells[1].dataset.value))", f"{rows}.map(r => r.cells[0].textContent)"
    press = "document.querySelector('#cifar10c table.sortable thead th:nth-child({}) button').click()"
    before = page.run(column)
    page.run(press.format(2))
    assert page.run(column) == sorted(before, reverse=True)
    page.run(press.format(2))
    assert page.run(column) == sorted(before)
    assert page.run("document.querySelector('#cifar10c th[aria-sort]').getAttribute('aria-sort')") == "ascending"
    page.run(press.format(1))
    assert page.run(names) == sorted(page.run(names), key=str.lower)


@pytest.mark.parametrize("dark", [False, True])
def test_the_theme_follows_the_system_and_the_reader(page: Page, finished: Path, dark: bool) -> None:
    light, black = "rgb(255, 255, 255)", "rgb(21, 24, 28)"
    ground = "getComputedStyle(document.body).backgroundColor"
    ink = "getComputedStyle(document.querySelector('.plot svg text')).fill"
    page.open(finished / "report" / "report.html", dark=dark)
    assert page.run(ground) == (black if dark else light)
    before = page.run(ink)
    page.run("document.getElementById('theme').click()")
    assert page.run(ground) == (light if dark else black)
    assert page.run(ink) != before, "charts follow the theme"
    page.open(finished / "report" / "report.html", dark=dark)
    assert page.run(ground) == (light if dark else black), "the choice is kept"


def test_a_number_leads_to_its_cell(page: Page) -> None:
    page.run("document.querySelector('#cifar10c td:nth-child(3) a[data-cells]').click()")
    shown = page.run(
        "[...document.querySelectorAll('details.cell.shown')].map(c => c.open && c.getClientRects().length > 0)"
    )
    assert shown == [True]
    assert page.run("location.hash.slice(1) === document.querySelector('.cell.shown').id")
    text = page.run("document.querySelector('.cell.shown').textContent")
    for field in ("data_checksum", "model_checksum", "options", "seed", "optimizer", "torch"):
        assert field in text
    page.run("document.querySelector('#cifar10c tbody td a').click()")
    assert page.run("document.querySelectorAll('details.cell.shown').length") == 2, "an average of two corruptions"


@pytest.mark.parametrize("width", [360, 412, 768, 1280])
def test_nothing_is_cut_off(page: Page, finished: Path, width: int) -> None:
    page.open(finished / "report" / "report.html", width=width, height=800)
    page.run("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert page.run(OVERFLOW) == []
    assert page.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert page.run(CUT_TEXT) == []


def test_text_in_charts_is_legible_on_a_phone(page: Page, finished: Path) -> None:
    page.open(finished / "report" / "report.html", width=360, height=800)
    heights = page.run(
        "[...document.querySelectorAll('.plot svg text')].filter(t => t.getClientRects().length)"
        ".map(t => t.getBoundingClientRect().height)"
    )
    assert heights
    assert min(heights) >= 10


def test_it_prints(page: Page) -> None:
    pdf = page.printed()
    assert pdf.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 2


def test_a_mark_has_a_tooltip(page: Page) -> None:
    page.point("#cifar10c figure .plot path[aria-roledescription='point']")
    tooltip = "document.getElementById('vg-tooltip-element')"
    while not page.run(f"{tooltip} && {tooltip}.classList.contains('visible')"):
        pass
    text = page.run(f"{tooltip}.textContent")
    assert re.search(r"method\s*SOURCE", text)
    assert re.search(r"accuracy \(%\)\s*\d+\.\d \(.+ to .+\)", text)


@pytest.mark.parametrize("figure", ["cifar10c-corruptions", "collapse-traces"])
def test_the_legend_picks_series_out(page: Page, figure: str) -> None:
    plot = f".plot[data-spec='spec-{figure}']"
    dimmed = f"[...document.querySelectorAll(\"{plot} [opacity]\")].filter(n => n.getAttribute('opacity') < 0.1).length"
    unseen = page.run(dimmed)
    page.point(f"{plot} .role-legend-symbol path", click=True)
    while page.run(dimmed) <= unseen:
        pass
    page.point(f"{plot} .role-legend-symbol path", click=True)
    while page.run(dimmed) > unseen:
        pass


def test_the_average_stays_in_sight(page: Page, finished: Path) -> None:
    page.open(finished / "report" / "report.html", width=360, height=800)
    places = """(() => {
      const box = document.querySelector('#cifar10c .scroll'), cells = box.querySelector('tbody tr').cells;
      const lefts = () => [...cells].slice(0, 2).map((cell) => cell.getBoundingClientRect().left);
      box.style.width = '220px';
      const before = lefts();
      box.scrollLeft = 1000;
      return [before, lefts(), box.scrollLeft];
    })()"""
    before, after, scrolled = page.run(places)
    assert scrolled > 0
    assert after == before


def test_plots_use_the_width_of_the_page(page: Page, finished: Path) -> None:
    for width in (1280, 360):
        page.open(finished / "report" / "report.html", width=width, height=800)
        plots, pages = page.run(
            "[[...document.querySelectorAll('.plot svg')].map(s => s.getBoundingClientRect().width),"
            " document.querySelector('main').clientWidth]"
        )
        assert plots
        assert all(0.82 * pages <= plot <= pages for plot in plots), (plots, pages)
