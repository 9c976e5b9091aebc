import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("statement", "heavy"),
    [("import ttc.cli.app", {"torch", "numpy", "rich.progress"}), ("import ttc.data, ttc.data.fetching", {"torch"})],
)
def test_starting_does_not_wait_for_what_it_does_not_need(statement: str, heavy: set[str]) -> None:
    code = f"import sys; {statement}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not heavy & set(loaded)
