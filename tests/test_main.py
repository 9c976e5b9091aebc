import subprocess
import sys


def test_a_mistake_is_one_sentence() -> None:
    shown = subprocess.run([sys.executable, "-m", "ttc", "inspect", ":x"], capture_output=True, text=True)
    assert (shown.returncode, shown.stderr) == (2, "ttc: expected package.module:function, got ':x'\n")
