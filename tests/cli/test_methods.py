"""The command line as a user meets it."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ttc
from ttc.cli import methods
from ttc.cli.app import app, main

ROOT = Path(__file__).parents[2]


def run(*words: str) -> str:
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_methods_lists_all_of_them() -> None:
    shown = run("methods")
    table, _, unusual, *_ = shown.split("\n\n")
    names = [line.split()[0] for line in table.splitlines()[1:] if not line.startswith(" ")]
    assert names == list(ttc.METHODS)
    rows = {line.split()[0]: line.split()[1:] for line in unusual.splitlines() if not line.startswith(" ")}
    assert rows["eata"][:3] == ["before", "1", "2,000"]
    assert rows["memo"][:3] == ["after", "1", "none"]
    assert "tent" not in rows
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_one_method_in_full() -> None:
    shown = run("methods", "ttc")
    assert "Algorithm 1" in shown
    words = " ".join(shown.split())
    assert "changes: norm affine; fwd/bwd: 2/2; needs: large batches; paper: Lin 2023; predicts: before; " in words
    assert "smallest batch: 1; memory: nothing; source images: none Options:" in words
    for option in ttc.METHODS["ttc"].options.values():
        assert option.meaning, f"{option.name} has no meaning in the docstring of ttc"
        assert " ".join(str(option).split()) in words
    assert "select_on (default 'fused'; choices: 'fused', 'plain'): Select by the entropy" in words
    assert run("methods", "source").endswith("Options: none\n")


def test_every_description_fits_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for method in ttc.METHODS.values():
        assert max(map(len, methods._describe(method).splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "message"),
    [(["methods", "tnet"], "ttc: unknown method 'tnet' (did you mean 'tent'?)"), (["nonsense"], "No such command")],
)
def test_an_error_is_one_sentence_without_a_traceback(
    words: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["ttc", *words])
    with pytest.raises(SystemExit) as leave:
        main()
    assert leave.value.code == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert "Traceback" not in errors


def test_version() -> None:
    shown = subprocess.run([sys.executable, "-m", "ttc", "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == f"ttc {ttc.__version__}"


def test_help_does_not_import_torch() -> None:
    code = "import sys; sys.argv = ['ttc', '--help']\nfrom ttc.cli.app import app\napp(standalone_mode=False)\n"
    subprocess.run([sys.executable, "-c", code + "assert 'torch' not in sys.modules"], check=True, capture_output=True)


def test_the_generated_page_is_current() -> None:
    page = (ROOT / "docs" / "methods.md").read_text()
    assert page == run("methods", "--markdown"), "run: ttc methods --markdown > docs/methods.md"
