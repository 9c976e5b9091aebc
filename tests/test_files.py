"""Atomic writing, allocation and checksums."""

import errno
import hashlib
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ttc.files import allocate, atomic, checksum, has_files


def test_a_file_appears_only_when_the_block_succeeds(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.txt"
    with atomic(path) as part:
        part.write_text("content")
        assert not path.exists()
        assert part.suffix == ".txt"
    assert path.read_text() == "content"
    assert list(path.parent.iterdir()) == [path]


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def interrupted_write() -> None:
        with atomic(path) as part:
            part.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted_write()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_was_writing_is_removed_by_the_next(tmp_path: Path) -> None:
    path, code = tmp_path / "file[1].txt", "import os, sys, pathlib, signal; from ttc.files import atomic\n"
    code += (
        "with atomic(pathlib.Path(sys.argv[1])) as part: part.write_text('half'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    with atomic(path) as part:
        part.write_text("whole")
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_with_temporary_files_only_is_free(tmp_path: Path) -> None:
    assert not has_files(tmp_path / "missing")
    assert not has_files(tmp_path)
    (tmp_path / ".manifest.json.x1y2.part.json").touch()
    assert not has_files(tmp_path)
    (tmp_path / ".notes").touch()
    assert has_files(tmp_path)


def test_a_file_that_another_is_writing_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with atomic(path) as first:
        first.write_text("first")
        with atomic(path) as second:
            second.write_text("second")
        assert first.read_text() == "first"
    assert path.read_text() == "first"


def test_permissions_are_those_of_an_ordinary_file(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with atomic(tmp_path / "atomic"):
        pass
    plain, ours = (stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "atomic"))
    assert ours == plain


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_checksum_of_more_than_one_piece(tmp_path: Path, algorithm: str) -> None:
    content = bytes(range(256)) * 5000
    (tmp_path / "file").write_bytes(content)
    assert checksum(tmp_path / "file", algorithm) == hashlib.new(algorithm, content).hexdigest()


def test_allocating_reserves_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(1 << 20)
    allocate(path)
    assert path.stat().st_size == 1 << 20
    assert path.stat().st_blocks * 512 >= 1 << 20


def test_a_file_that_does_not_fit_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "sparse"
    path.write_bytes(b"x")
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        allocate(path)
    assert not path.exists()
