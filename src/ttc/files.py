"""Atomic file writing, allocation and checksums."""

import errno
import glob
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

if sys.platform != "win32":
    import fcntl


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path`` that replaces it when the block succeeds and is deleted when it fails.

    Those of processes that were killed while they wrote the same file are deleted as well.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned_parts(path)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=f".part{path.suffix}")
    locked = _lock(descriptor)
    if not locked:
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
        if locked:
            os.close(descriptor)


def is_partial(path: Path) -> bool:
    """Tell whether a path names a temporary file, which a killed process may have left.

    Example:
        >>> is_partial(Path("out/.labels.npy.x1y2.part.npy")), is_partial(Path("out/labels.npy"))
        (True, False)
    """
    return path.name.startswith(".") and ".part" in path.name


def has_files(folder: Path) -> bool:
    """Tell whether a folder exists and contains anything but temporary files."""
    return folder.exists() and not all(is_partial(path) for path in folder.iterdir())


def _remove_abandoned_parts(path: Path) -> None:
    """Delete the temporary files for ``path`` that no process has locked: their writers were killed."""
    for part in path.parent.glob(f".{glob.escape(path.name)}.*.part{glob.escape(path.suffix)}"):
        with suppress(OSError):
            descriptor = os.open(part, os.O_RDWR)
            try:
                if _lock(descriptor):
                    part.unlink()
            finally:
                os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Lock an open file until it is closed; return whether that succeeded: it does not where files have no locks."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


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
