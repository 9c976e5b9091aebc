"""The examples run as a user would run them, without warnings, and show an improvement."""

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[1] / "examples"
SHOWN = {  # two accuracies each: the second must be the higher one
    "adapt_custom_model": r"fog +as trained +([\d.]+) % +adapted +([\d.]+) %",
    "folder_of_images": r"as trained +([\d.]+) %.*\nadapted +([\d.]+) %",
    "guard_a_stream": r"sorted\n(?:.*\n)*  unguarded +([\d.]+) %(?:.*\n)*  guarded +([\d.]+) %",
    "lightning_test_loop": r"as trained +([\d.]+) %\nadapted +([\d.]+) %",
    "new_composition": r"gaussian_noise +([\d.]+) +[\d.]+ +([\d.]+)",
    "resume_saved_adaptation": r"never having stopped: True\n(?=(?:.*\n)*source +([\d.]+))(?:.*\n)*Tuesday +([\d.]+)",
}
IN_A_PROCESS = "lightning_test_loop"  # of its own, since it imports another framework; the others share the imports


def test_every_example_is_here() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.py")) == sorted(SHOWN)


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", [name for name in SHOWN if name != IN_A_PROCESS])
def test_example(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")  # warnings are errors in all tests
    shown = capfd.readouterr()
    assert shown.err == ""
    check(name, shown.out)
    assert not list(tmp_path.iterdir())


def test_example_as_a_program(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(FOLDER / f"{IN_A_PROCESS}.py")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    shown = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=600)
    assert shown.returncode == 0, shown.stderr
    assert shown.stderr == ""
    check(IN_A_PROCESS, shown.stdout)
    assert not list(tmp_path.iterdir())


def check(name: str, shown: str) -> None:
    """Check that what an example printed shows an improvement."""
    found = re.search(SHOWN[name], shown)
    assert found, shown
    assert float(found[2]) > float(found[1]), shown
