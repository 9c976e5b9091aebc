import re
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
    (tmp_path / "broken_extra.py").write_text("raise RuntimeError('[undefined] symbol\\nmore')")
    fine, missing = {"fine_extra": "fine>=9"}, {"absent_extra": "absent>=1", "absent_too": "absent-too"}
    broken = {"fine_extra": "fine", "broken_extra": "broken>=2"}
    assert doctor._extra(fine) == ("present", "fine_extra 9.9")
    assert doctor._extra({**fine, **missing}) == ("missing", "pip install 'absent>=1' 'absent-too'")
    state, detail = doctor._extra({**missing, **broken})
    assert state == "broken"
    assert detail.startswith("broken_extra cannot be imported ([undefined] symbol); pip install")
    monkeypatch.setattr(doctor, "EXTRAS", {"one": ("fun", missing), "two": ("more", broken), "three": ("x", fine)})
    code, output = run("doctor", "--data", tmp_path)
    assert code == 0
    lines = [line.split()[:2] for line in output.splitlines()]
    assert ["one", "missing"] in lines
    assert ["two", "broken"] in lines
    assert ["three", "present"] in lines
    assert "for more: broken_extra cannot be imported ([undefined] symbol)" in output


def test_the_extras_are_those_of_the_package() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    for name, (_, requirements) in doctor.EXTRAS.items():
        declared = re.search(rf"^{name} = \[(.*?)\]", text, re.MULTILINE)
        assert declared
        assert sorted(re.findall('"(.*?)"', declared[1])) == sorted(requirements.values())


def test_it_fits_a_narrow_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["doctor", "--data", "here"])
    assert max(map(len, result.output.splitlines())) <= 80


def test_a_directory_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert "not writable; choose another with --data or TTC_DATA" in doctor._directory(tmp_path, None)
