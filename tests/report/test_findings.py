import json
from pathlib import Path

import pytest

from tests.report.made import findings, result_table
from ttc.errors import TTCError
from ttc.report.findings import FORMAT, Value, read_findings, write_findings


def test_findings_survive_the_file(tmp_path: Path) -> None:
    write_findings(findings(), tmp_path / "x.json")
    assert read_findings(tmp_path / "x.json") == findings()
    assert json.loads((tmp_path / "x.json").read_text())["format"] == FORMAT


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "is not a findings file of a study"),
        ("[]", "is not a findings file of a study"),
        (f'{{"format": {FORMAT}}}', "is not a findings file of a study"),
        (
            '{"format": 1}',
            "has findings of format 1, this version of ttc reads format 2; write them again with ttc rep",
        ),
    ],
)
def test_other_files_are_rejected(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(TTCError, match=sentence):
        read_findings(path)


def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(TTCError, match="cannot read"):
        read_findings(tmp_path / "none.json")


def test_the_interval_is_two_standard_errors() -> None:
    assert Value(50.0, 1.0).interval == (50.0, 48.04, 51.96)
    assert Value(50.0).interval == (50.0, 50.0, 50.0)
    assert Value(None, 1.0).interval is None


def test_the_best_of_a_column_is_what_is_printed() -> None:
    table = result_table()
    assert table.winners("average") == {"TTC"}
    assert table.winners("fog") == set(), "one value is no contest"
    assert set(table.beside_paper("average")) == {"TENT", "TTC"}
