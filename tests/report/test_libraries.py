import re
import subprocess
import sys
from pathlib import Path

import pytest

from ttc.errors import TTCError
from ttc.report.libraries import LIBRARIES, require_libraries

ROOT = Path(__file__).parents[2]


def test_a_missing_library_is_a_sentence_with_the_way_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    require_libraries("a figure")
    monkeypatch.setitem(LIBRARIES, "no_such_module", "no-such-library>=1")
    with pytest.raises(TTCError, match=r"a figure needs libraries .* not installed: pip install 'no-such-library>=1'$"):
        require_libraries("a figure")


def test_the_hint_and_the_extra_name_the_same_libraries() -> None:
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    extra = next(line for line in lines if line.startswith("report = "))
    assert re.findall(r'"(.+?)"', extra) == list(LIBRARIES.values())


@pytest.mark.parametrize(
    "statement",
    [
        "import ttc.cli.app",
        "import ttc",
        "import ttc.report.plots, ttc.report.page, ttc.report.output, ttc.report.overview",
        "import ttc.studies.figures",
    ],
)
def test_the_libraries_are_imported_when_something_is_drawn(statement: str) -> None:
    code = f"import sys; {statement}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not set(LIBRARIES) & set(loaded)
