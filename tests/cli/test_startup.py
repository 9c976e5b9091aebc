import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.conftest import make_row
from tests.bench.test_store import HERE, result
from ttc.bench import Store


@pytest.mark.parametrize(
    ("statement", "heavy"),
    [("import ttc.cli.app", {"torch", "numpy", "rich.progress"}), ("import ttc.data, ttc.data.fetching", {"torch"})],
)
def test_starting_does_not_wait_for_what_it_does_not_need(statement: str, heavy: set[str]) -> None:
    code = f"import sys; {statement}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not heavy & set(loaded)


@pytest.mark.parametrize(
    "arguments",
    [
        ["results"],
        ["results", "--summary"],
        ["results", "--compare", "norm,ttc(bandwidth=2)"],
        ["results", "--format", "csv"],
        ["report", "--help"],
        ["run", "--help"],
    ],
    ids=" ".join,
)
def test_listing_results_does_not_import_torch(arguments: list[str], tmp_path: Path) -> None:
    with Store(tmp_path / "results.sqlite") as store:
        for method in ("norm", "ttc(bandwidth=2)"):
            store.finish(make_row(method).protocol, result(), HERE, method)
    code = (
        f"import sys; sys.argv = ['ttc', *{arguments!r}]\nfrom ttc.cli.app import app\n"
        "app(standalone_mode=False)\nassert 'torch' not in sys.modules"
    )
    shown = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout
