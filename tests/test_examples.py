"""The examples run as a user would run them, without warnings, and show an improvement."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
SHOWN = {  # two accuracies each: the second must be the higher one
    "adapt_custom_model": r"fog +as trained +([\d.]+) % +adapted +([\d.]+) %",
    "folder_of_images": r"as trained +([\d.]+) %.*\nadapted +([\d.]+) %",
    "guard_a_stream": r"sorted\n(?:.*\n)*  unguarded +([\d.]+) %(?:.*\n)*  guarded +([\d.]+) %",
    "lightning_test_loop": r"as trained +([\d.]+) %\nadapted +([\d.]+) %",
    "new_composition": r"gaussian_noise +([\d.]+) +[\d.]+ +([\d.]+)",
    "resume_saved_adaptation": r"never having stopped: True\n(?=(?:.*\n)*source +([\d.]+))(?:.*\n)*Tuesday +([\d.]+)",
}


def test_every_example_is_here() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.py")) == sorted(SHOWN)


@pytest.mark.parametrize("name", SHOWN)
def test_example(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(FOLDER / f"{name}.py")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    shown = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=600)
    assert shown.returncode == 0, shown.stderr
    assert shown.stderr == ""
    found = re.search(SHOWN[name], shown.stdout)
    assert found, shown.stdout
    assert float(found[2]) > float(found[1]), shown.stdout
    assert not list(tmp_path.iterdir())
