import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
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


def assert_nothing_unpacked(archive: Path, into: Path, reason: str, **limits: Any) -> None:
    with pytest.raises(TTCError, match=reason) as caught:
        unpack(archive, into, **limits)
    assert "\n" not in str(caught.value)
    assert list(into.iterdir()) == []


def large(tmp_path: Path, mode: str) -> Path:
    with tarfile.open(tmp_path / "large.tar", mode) as tar:  # type: ignore[call-overload]
        for name in ("one", "two"):
            info = tarfile.TarInfo(name)
            info.size = 200_000
            tar.addfile(info, io.BytesIO(np.random.default_rng(0).bytes(info.size)))
    return tmp_path / "large.tar"


def test_a_wrong_checksum_of_gzip_is_damage(tmp_path: Path) -> None:
    archive = large(tmp_path, "w:gz")
    content = bytearray(archive.read_bytes())
    content[-8] ^= 1  # the CRC is at the end, after everything that tarfile reads
    archive.write_bytes(content)
    assert_nothing_unpacked(archive, tmp_path / "out", "is damaged")


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
@pytest.mark.parametrize("keep", [0.999, 0.7, 0.3])
def test_a_truncated_archive_is_damage(tmp_path: Path, mode: str, keep: float) -> None:
    archive = large(tmp_path, mode)
    content = archive.read_bytes()
    if mode == "w" and keep == 0.999:
        pytest.skip("cut in the zeros at the end: every file is whole")
    archive.write_bytes(content[: int(keep * len(content))])
    assert_nothing_unpacked(archive, tmp_path / "out", "is damaged")


def test_names_that_come_twice_are_rejected(tmp_path: Path) -> None:
    archive = write(tmp_path / "a.tar", member("d/x"), member("./d/x"))
    assert_nothing_unpacked(archive, tmp_path / "out", "twice")


def test_a_path_of_two_thousand_folders_is_rejected(tmp_path: Path) -> None:
    archive = write(tmp_path / "a.tar", member("/".join(["a"] * 2000)))
    assert_nothing_unpacked(archive, tmp_path / "out", "a path of 2000 folders")


def test_more_bytes_or_files_than_expected_are_rejected(tmp_path: Path) -> None:
    archive = large(tmp_path, "w:gz")
    assert_nothing_unpacked(archive, tmp_path / "out", "more than the expected 399999 bytes", max_bytes=399_999)
    assert_nothing_unpacked(archive, tmp_path / "out", "or 1 files", max_members=1)
    assert len(unpack(archive, tmp_path / "out", max_bytes=400_000, max_members=2)) == 2
