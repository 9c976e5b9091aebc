"""Unpack tar archives safely: only regular files and folders, none of them outside the target."""

import lzma
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from ttc.data.location import unwritable
from ttc.errors import TTCError

DEEPEST = 64  # folders of a path


def unpack(
    archive: Path,
    into: Path,
    advance: Callable[[int], None] | None = None,
    max_bytes: int | None = None,
    max_members: int | None = None,
) -> list[Path]:
    """Unpack a tar archive into a folder: all of its files, or none if one member is unsafe.

    Files are unpacked to a staging folder first and moved once the whole archive has been read.

    Args:
        archive: The tar archive, compressed or not.
        into: The folder to unpack into, created if needed.
        advance: Called with the number of bytes of each unpacked file.
        max_bytes: The most bytes that the files may have together.
        max_members: The most files and folders.

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
        names = _extract(archive, staging, advance, max_bytes, max_members)
        for name in names:
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            (staging / name).replace(into / name)
        return [into / name for name in names]
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = str(error).partition("\n")[0].rstrip(":")
        raise TTCError(f"{archive} is damaged ({reason}): delete it and fetch it again") from error
    except OSError as error:
        if error.errno is None:  # not of the system but of a decompressor, such as a wrong checksum
            raise TTCError(f"{archive} is damaged ({error}): delete it and fetch it again") from error
        raise unwritable(into, error) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _extract(
    archive: Path,
    staging: Path,
    advance: Callable[[int], None] | None,
    max_bytes: int | None,
    max_members: int | None,
) -> list[PurePosixPath]:
    names: list[PurePosixPath] = []
    seen: set[PurePosixPath] = set()
    unpacked = 0
    with tarfile.open(archive) as tar:
        for count, member in enumerate(tar, 1):
            name = _safe(member, archive)
            unpacked += member.size
            if (max_bytes is not None and unpacked > max_bytes) or (max_members is not None and count > max_members):
                raise TTCError(
                    f"{archive} unpacks to more than the expected {max_bytes} bytes or {max_members} files; "
                    "nothing was unpacked"
                )
            if name in seen and not member.isdir():
                raise TTCError(f"{archive} contains {member.name!r} twice, which is unsafe; nothing was unpacked")
            seen.add(name)
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
        _read_to_end(tar)
    return names


def _read_to_end(tar: tarfile.TarFile) -> None:
    """Read what follows the last member: only at its end does a compressed file show a wrong checksum."""
    while rest := tar.fileobj.read(1 << 20):
        if rest.strip(b"\0"):
            raise tarfile.ReadError("there is data after its end")


def _safe(member: tarfile.TarInfo, archive: Path) -> PurePosixPath:
    """Return the path of a member; reject links, devices and paths outside the target."""
    name = PurePosixPath(member.name)
    if not (member.isreg() or member.isdir()):
        raise TTCError(f"{archive} contains {member.name!r}, a link or a device, which is unsafe; nothing was unpacked")
    if len(name.parts) > DEEPEST:
        raise TTCError(f"{archive} contains a path of {len(name.parts)} folders, which is unsafe; nothing was unpacked")
    if name.is_absolute() or ".." in name.parts or "\\" in member.name or ":" in member.name:
        raise TTCError(
            f"{archive} contains {member.name!r}, a path outside its folder, which is unsafe; nothing was unpacked"
        )
    return name
