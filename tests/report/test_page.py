import json
import re
from dataclasses import replace

from tests.report.made import findings
from ttc.report.page import render_page


def test_names_cannot_break_the_page() -> None:
    bad = "<script>alert(1)</script>"
    found = findings()
    figure = replace(found.figures[0], spec={**found.figures[0].spec, "title": bad})
    text = render_page([replace(found, title=bad, notes=("a < b & c",), figures=(figure,))], '"title"', "now")
    assert "<script>alert(1)" not in text
    assert "a &lt; b &amp; c" in text
    assert "<title>&#34;title&#34;</title>" in text


def test_the_specifications_are_in_the_page_as_they_are() -> None:
    text = render_page([findings()], "title", "now")
    for figure in findings().figures:
        inside = re.search(rf'<script type="application/json" id="spec-{figure.name}">(.*?)</script>', text, re.DOTALL)
        assert inside is not None
        assert json.loads(inside[1]) == figure.spec


def test_tables_begin_with_the_average_and_compare_with_the_paper() -> None:
    text = render_page([findings()], "title", "now")
    assert '<table class="sortable averaged">' in text
    assert "<th>method</th><th>average</th><th>fog</th>" in text
    assert "Beside the paper: average" in text
    assert "paper 82.5, difference −11.3; unlike the paper" in text
    assert not re.search(r"[-−]0\.0\b", text.partition("<script>")[0])


def test_claims_of_studies_with_the_same_cells_are_counted_once() -> None:
    text = render_page([findings(), replace(findings(), study="again")], "title", "now")
    assert "1 claims of the paper" not in text
    assert "1 claim of the paper was tested here: 1 holds." in text


def test_a_study_without_cells_and_claims_is_a_page() -> None:
    text = render_page([replace(findings(), claims=(), cells=(), tables=(), figures=(), headline="")], "title", "now")
    assert "Every cell" not in text
    assert text.startswith("<!doctype html>")
