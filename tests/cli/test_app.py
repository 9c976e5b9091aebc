"""The command line as a whole: help, warnings, and what every command does with a user's error."""

import os
import subprocess
import sys
import warnings

import pytest
from typer.testing import CliRunner

import ttc
from ttc.cli.app import _print_warnings_once, app


def test_the_package_runs_as_a_module() -> None:
    shown = subprocess.run([sys.executable, "-m", "ttc", "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == f"ttc {ttc.__version__}"


def test_the_list_of_commands_is_not_cut() -> None:
    shown = CliRunner().invoke(app, ["--help"], terminal_width=80).output
    assert "diagnose" in shown
    assert "..." not in shown.partition("Commands:")[2]


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("notebook", [True, False])
def test_a_notebook_cell_gets_plain_lines(notebook: bool) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in {"JPY_PARENT_PID", "NO_COLOR"}}
    environment |= {"TERM": "xterm-color", **({"JPY_PARENT_PID": "1"} if notebook else {})}
    terminal, side = os.openpty()  # as the shell of a notebook has one
    command = [sys.executable, "-m", "ttc", "data", "list"]
    subprocess.run(command, stdout=side, env=environment, check=True)
    os.close(side)
    shown = os.read(terminal, 1 << 16)
    os.close(terminal)
    assert (b"\x1b[" in shown) != notebook


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (
            "run",
            ["imagefolder:PATH[@SIZE]", "package.module:function", "runs its code", "--allow-code", "--statistics"],
        ),
        ("adapt", ["[default: (adapted/MODEL-IMAGES)]", "--statistics", "--no-labels"]),
        ("inspect", ["--statistics", "runs its code"]),
    ],
)
def test_help_loses_nothing_to_markup_or_width(command: str, words: list[str]) -> None:
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(app, [command, "--help"]).output
    assert max(map(len, shown.splitlines())) <= 80
    text = " ".join(shown.split()).replace("MODEL- IMAGES", "MODEL-IMAGES")
    assert [word for word in words if word not in text] == []


def test_a_warning_is_printed_once_without_its_source_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # restored afterwards
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        _print_warnings_once()
        for _ in range(3):
            warnings.warn("a batch of one image", stacklevel=1)
    assert capsys.readouterr().err == "ttc: warning: a batch of one image\n"
