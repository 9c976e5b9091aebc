import io
import tarfile
from pathlib import Path

import pytest

from ttc.data.unpacking import unpack
from ttc.errors import TTCError


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def write(path: Path, *members: tarfile.TarInfo, mode: str = "w") -> Path:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for info in members:
            content = info.name.encode() if info.isreg() else b""
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_files_and_folders(tmp_path: Path, mode: str) -> None:
    archive = write(tmp_path / "a.tar", member("d", tarfile.DIRTYPE), member("d/x"), member("./y"), mode=mode)
    (tmp_path / "out" / "d").mkdir(parents=True)
    (tmp_path / "out" / "d" / "x").write_text("old")
    (tmp_path / "out" / "d" / "mine").write_text("kept")
    reported: list[int] = []
    files = unpack(archive, tmp_path / "out", reported.append)
    assert sorted(files) == [tmp_path / "out" / "d" / "x", tmp_path / "out" / "y"]
    assert (tmp_path / "out" / "d" / "x").read_text() == "d/x"
    assert (tmp_path / "out" / "d" / "mine").read_text() == "kept"
    assert sum(reported) == len("d/x") + len("./y")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["d", "y"]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (member("../evil"), "outside its folder"),
        (member("a/../../evil"), "outside its folder"),
        (member("/evil"), "outside its folder"),
        (member("C:/evil"), "outside its folder"),
        (member("..\\evil"), "outside its folder"),
        (member("link", tarfile.SYMTYPE, "/etc/passwd"), "a link or a device"),
        (member("hard", tarfile.LNKTYPE, "../../evil"), "a link or a device"),
        (member("pipe", tarfile.FIFOTYPE), "a link or a device"),
        (member("device", tarfile.CHRTYPE), "a link or a device"),
    ],
)
def test_nothing_leaves_the_target_and_nothing_is_left(tmp_path: Path, bad: tarfile.TarInfo, reason: str) -> None:
    archive = write(tmp_path / "a.tar", member("good"), bad)
    with pytest.raises(TTCError, match=f"{reason}, which is unsafe; nothing was unpacked"):
        unpack(archive, tmp_path / "in" / "out")
    assert list((tmp_path / "in" / "out").iterdir()) == []
    assert not list(tmp_path.rglob("*evil*"))


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_truncated_archive(tmp_path: Path, mode: str) -> None:
    archive = write(tmp_path / "a.tar", *(member(f"{i}" * 200) for i in range(9)), mode=mode)
    archive.write_bytes(archive.read_bytes()[: 700 if mode == "w" else 60])
    with pytest.raises(TTCError, match=r"a.tar is damaged .*delete it and fetch it again"):
        unpack(archive, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_no_archive_at_all(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_text("<html>")
    with pytest.raises(TTCError, match="damaged"):
        unpack(tmp_path / "a.tar", tmp_path / "out")


def test_no_place_to_write(tmp_path: Path) -> None:
    archive = write(tmp_path / "a.tar", member("x"))
    (tmp_path / "file").write_text("")
    with pytest.raises(TTCError, match=r"cannot write to .*file"):
        unpack(archive, tmp_path / "file")
