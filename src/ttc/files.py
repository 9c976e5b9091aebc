"""Atomic file writing, allocation and checksums."""

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path`` that replaces it when the block succeeds and is deleted when it fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=f".part{path.suffix}")
    os.close(descriptor)
    part = Path(name)
    try:
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        part.chmod(0o666 & ~umask)  # mkstemp makes private files
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def allocate(path: Path) -> None:
    """Allocate the full size of a file on disk, or fail now: writing to mapped memory would kill the process later.

    Args:
        path: A file that has its final size; it is deleted if the disk is full.

    Raises:
        OSError: There is no space.
    """
    size = path.stat().st_size
    try:
        with path.open("r+b") as file:
            if not _fallocate(file.fileno(), size) and shutil.disk_usage(path).free < size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        with suppress(OSError):
            path.unlink()
        raise


def _fallocate(descriptor: int, size: int) -> bool:
    """Allocate the bytes of an open file; return whether the system can."""
    if not hasattr(os, "posix_fallocate") or not size:
        return False
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno in {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}:
            return False
        raise
    return True


def checksum(path: Path, algorithm: str = "sha256") -> str:
    """Return the hex digest of a file's bytes, read in pieces."""
    digest = hashlib.new(algorithm)
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
