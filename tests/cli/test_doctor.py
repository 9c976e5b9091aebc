import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import ttc
from ttc.cli import doctor
from ttc.cli.app import app


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(a) for a in arguments])
    return result.exit_code, result.output


def test_an_empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTC_DATA", str(tmp_path / "none"))
    code, output = run("doctor")
    assert code == 0
    for expected in (
        f"ttc {ttc.__version__}, Python {sys.version.split()[0]}",
        f"torch {torch.__version__}",
        f"data directory {tmp_path / 'none'} (TTC_DATA): not created yet",
        "checkpoints/robustbench-standard.pt",
        "ttc data fetch cifar10 ",
        "ttc demo",
        "ttc data fetch frost ",
    ):
        assert expected in output
    assert "damaged" not in output
    assert "ttc train" not in output


def test_present_and_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for name in [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]:
        with (folder / name).open("wb") as file:
            file.truncate(30_730_000)
    code, output = run("doctor", "--data", tmp_path)
    assert code == 0
    assert "ttc train" in output
    (folder / "data_batch_3.bin").unlink()
    code, output = run("doctor", "--data", tmp_path)
    assert code == 1
    assert "1 of 6 files are missing, such as cifar-10-batches-bin/data_batch_3.bin" in output
    assert "ttc data fetch cifar10                download the damaged files again" in output


def test_optional_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "fine_extra.py").write_text("__version__ = '9.9'")
    (tmp_path / "broken_extra.py").write_text("raise RuntimeError('undefined symbol\\nmore')")
    assert doctor._extra("fine_extra") == "9.9"
    (tmp_path / "needy_extra.py").write_text("import absent_extra")
    assert doctor._extra("absent_extra").endswith("pip install 'absent_extra'")
    assert doctor._extra("needy_extra").startswith("installed, but it needs absent_extra, which is not")
    assert doctor._extra("broken_extra").startswith("installed but cannot be imported (undefined symbol)")


def test_a_directory_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert "not writable; choose another with --data or TTC_DATA" in doctor._directory(tmp_path, None)
