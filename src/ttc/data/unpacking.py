"""Unpack tar archives safely: only regular files and folders, none of them outside the target."""

import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from ttc.data.location import unwritable
from ttc.errors import TTCError


def unpack(archive: Path, into: Path, advance: Callable[[int], None] | None = None) -> list[Path]:
    """Unpack a tar archive into a folder: all of its files, or none if one member is unsafe.

    Files are unpacked to a staging folder first and moved once the whole archive has been read.

    Args:
        archive: The tar archive, compressed or not.
        into: The folder to unpack into, created if needed.
        advance: Called with the number of bytes of each unpacked file.

    Returns:
        The paths of the unpacked files.

    Raises:
        TTCError: The archive is damaged or unsafe, or the folder cannot be written.
    """
    try:
        into.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(dir=into, prefix=".unpacking-"))
    except OSError as error:
        raise unwritable(into, error) from error
    try:
        names = _extract(archive, staging, advance)
        for name in names:
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            (staging / name).replace(into / name)
        return [into / name for name in names]
    except (tarfile.TarError, EOFError, zlib.error) as error:
        reason = str(error).partition("\n")[0].rstrip(":")
        raise TTCError(f"{archive} is damaged ({reason}): delete it and fetch it again") from error
    except OSError as error:
        raise unwritable(into, error) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _extract(archive: Path, staging: Path, advance: Callable[[int], None] | None) -> list[PurePosixPath]:
    names = []
    with tarfile.open(archive) as tar:
        for member in tar:
            name = _safe(member, archive)
            if member.isdir():
                (staging / name).mkdir(parents=True, exist_ok=True)
                continue
            source = tar.extractfile(member)
            if source is None:
                raise TTCError(f"{archive} contains {member.name!r}, which has no content; nothing was unpacked")
            (staging / name).parent.mkdir(parents=True, exist_ok=True)
            with source, (staging / name).open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
            if (staging / name).stat().st_size != member.size:
                raise tarfile.ReadError(f"{member.name} is truncated")
            names.append(name)
            if advance:
                advance(member.size)
    return names


def _safe(member: tarfile.TarInfo, archive: Path) -> PurePosixPath:
    """Return the path of a member; reject links, devices and paths outside the target."""
    name = PurePosixPath(member.name)
    if not (member.isreg() or member.isdir()):
        raise TTCError(f"{archive} contains {member.name!r}, a link or a device, which is unsafe; nothing was unpacked")
    if name.is_absolute() or ".." in name.parts or "\\" in member.name or ":" in member.name:
        raise TTCError(
            f"{archive} contains {member.name!r}, a path outside its folder, which is unsafe; nothing was unpacked"
        )
    return name
