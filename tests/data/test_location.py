from pathlib import Path

import pytest

from ttc.data import data_root
from ttc.errors import TTCError


def test_order_of_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTC_DATA", str(tmp_path / "env"))
    assert data_root(tmp_path / "option") == tmp_path / "option"
    assert data_root() == tmp_path / "env"
    monkeypatch.setenv("TTC_DATA", "")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_root() == tmp_path / "cache" / "ttc"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_root() == tmp_path / ".cache" / "ttc"
    monkeypatch.setattr("sys.platform", "darwin")
    assert data_root() == tmp_path / "Library" / "Caches" / "ttc"
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "Local"))
    assert data_root() == tmp_path / "Local" / "ttc"


def test_home_and_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert data_root(Path("~/x")) == tmp_path / "x"
    assert data_root(Path("y")) == tmp_path / "y"


def test_a_file_is_no_data_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TTCError, match=r"the data directory .*file is a file: choose a directory"):
        data_root(tmp_path / "file")
