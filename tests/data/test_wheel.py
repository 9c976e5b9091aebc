"""Files from inside a package: a wheel made here, found by pip in a folder or installed on a path."""

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ttc.data.catalogue import SOURCES, DataFile, Source
from ttc.data.fetching import fetch, source_status
from ttc.data.wheel import copy_installed, download_wheel, unpack_wheel
from ttc.errors import TTCError

HAS_PIP = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode == 0
WHEEL = "icytextures-1.0-py3-none-any.whl"
FILES = {"icytextures/frost/one.png": b"one" * 50, "icytextures/frost/two.png": b"two" * 50}


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with the wheel, which pip takes as its only index."""
    folder = tmp_path / "index"
    folder.mkdir()
    info = "icytextures-1.0.dist-info"
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        for name, content in FILES.items():
            wheel.writestr(name, content)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: icytextures\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    parts = tuple(
        DataFile(f"ice/{Path(name).name}", len(content), f"sha256:{hashlib.sha256(content).hexdigest()}")
        for name, content in FILES.items()
    )
    digest = hashlib.sha256((folder / WHEEL).read_bytes()).hexdigest()
    source = Source("Ice", WHEEL, (), None, f"sha256:{digest}", "ice", parts)
    full = Source(**{**vars(source), "package": "icytextures==1.0", "inside": "icytextures/frost"})
    monkeypatch.setitem(SOURCES, "ice", full)
    return folder


@pytest.mark.skipif(not HAS_PIP, reason="pip is not installed")
def test_pip_downloads_the_wheel(index: Path, tmp_path: Path) -> None:
    root = tmp_path / "data"
    assert source_status("ice", root).status == "missing"
    assert fetch("ice", root) == ("present", "verified")
    assert (root / "ice" / "two.png").read_bytes() == FILES["icytextures/frost/two.png"]
    assert sorted(path.name for path in root.iterdir()) == ["ice"]  # the wheel is deleted
    (root / "ice" / "two.png").write_bytes(b"TWO" * 50)
    assert source_status("ice", root, thorough=True).status == "damaged"
    assert fetch("ice", root, keep_archive=True).status == "present"
    assert (root / WHEEL).exists()


@pytest.mark.skipif(not HAS_PIP, reason="pip is not installed")
def test_what_pip_cannot_get_is_one_sentence(index: Path, tmp_path: Path) -> None:
    with pytest.raises(
        TTCError, match=r"pip cannot download icytextures==2.0 \(.*\): get its wheel .* save it as .*w\."
    ):
        download_wheel("icytextures==2.0", tmp_path / "w.whl")
    with zipfile.ZipFile(index / WHEEL, "a") as wheel:
        wheel.writestr("more.txt", "another build")
    with pytest.raises(TTCError, match=r"the wheel of icytextures==1.0 from pip does not match its checksum sha256:"):
        fetch("ice", tmp_path / "data")
    assert not (tmp_path / "data" / WHEEL).exists()


def test_a_wheel_brought_by_hand_is_used(index: Path, tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    (index / WHEEL).rename(root / WHEEL)
    assert fetch("ice", root).status == "present"


def test_an_installed_copy_is_used(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(index / WHEEL) as wheel:
        wheel.extractall(tmp_path / "site")
    (index / WHEEL).unlink()
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert fetch("ice", tmp_path / "data").status == "present"
    assert not copy_installed("icytextures==2.0", "icytextures/frost", ["one.png"], tmp_path / "out")
    assert not copy_installed("icytextures==1.0", "icytextures/frost", ["six.png"], tmp_path / "out")


def test_a_damaged_wheel(tmp_path: Path, index: Path) -> None:
    (tmp_path / "w.whl").write_bytes(b"PK no")
    with pytest.raises(TTCError, match=r"w.whl is damaged"):
        unpack_wheel(tmp_path / "w.whl", "a", ["b"], tmp_path)
    with pytest.raises(TTCError, match=r"is damaged .*six.png"):
        unpack_wheel(index / WHEEL, "icytextures/frost", ["six.png"], tmp_path)
