from pathlib import Path

import pytest

from tests.report.made import findings
from ttc.errors import TTCError
from ttc.report.output import read_folder, write_files


def test_everything_is_written_and_read_back(tmp_path: Path) -> None:
    written = write_files(findings(), tmp_path)
    assert {str(path.relative_to(tmp_path)) for path in written} == {
        *("study.json", "study.md", "tables/table.md", "tables/table.tex", "tables/table.csv"),
        *(f"figures/{name}.{kind}" for name in ("main", "panels") for kind in ("svg", "png", "pdf")),
    }
    assert all(path.stat().st_size for path in written)
    assert read_folder(tmp_path) == [findings()]


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TTCError, match=r"cannot write to .*; choose another --output"):
        write_files(findings(), tmp_path / "file")
