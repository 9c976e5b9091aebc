import csv

from tests.report.made import findings, result_table
from ttc.report.result_tables import as_csv, beside, document, latex, markdown


def test_markdown_has_the_average_first_and_no_negative_zero() -> None:
    assert markdown(result_table()).splitlines() == [
        "| | average | fog |",
        "|---|---:|---:|",
        "| TENT | 70.0 | 68.0 |",
        r"| TTC | **71.2** \* |  |",
        "| TENT + flip | 0.0 |  |",
    ]


def test_latex_has_the_same_cells() -> None:
    assert r"TTC & \textbf{71.2} &  \\" in latex(result_table())


def test_csv_keeps_every_digit_in_the_order_of_the_columns() -> None:
    rows = list(csv.DictReader(as_csv(result_table()).splitlines()))
    assert [(row["row"], row["column"]) for row in rows[:2]] == [("TENT", "average"), ("TENT", "fog")]
    assert rows[2]["ours"] == "71.24"
    assert rows[2]["flag"] == "unlike the paper"


def test_beside_the_paper_are_only_rows_that_it_has() -> None:
    text = beside(result_table(), "average")
    assert "| TTC | 71.2 | 0.50 | 82.5 | −11.3 | unlike the paper |" in text
    assert "flip" not in text


def test_a_document_links_its_figures() -> None:
    text = document(findings())
    assert text.startswith("# A study\n")
    assert "![main](figures/main.svg)" in text
    assert "- **holds**: TTC improves on TENT." in text
    assert "The fields that all 3 cells have in common" in text
