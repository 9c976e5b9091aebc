"""Archives into folders: only plain files and folders, and none of them outside the target."""

import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from ttc.data.location import unwritable
from ttc.errors import TTCError


def unpack(archive: Path, into: Path, advance: Callable[[int], None] | None = None) -> list[Path]:
    """The files of a tar archive, written below ``into``: all of them, or none when one member is unacceptable.

    SelectAll is unpacked beside its place first and moved when the whole archive was good. ``advance`` is told bytes.
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
                raise TTCError(f"{archive} holds {member.name!r}, which has no content: it is refused")
            (staging / name).parent.mkdir(parents=True, exist_ok=True)
            with source, (staging / name).open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
            if (staging / name).stat().st_size != member.size:
                raise tarfile.ReadError(f"{member.name} is cut off")
            names.append(name)
            if advance:
                advance(member.size)
    return names


def _safe(member: tarfile.TarInfo, archive: Path) -> PurePosixPath:
    """The member's path, refused where it is a link or device, or would lead out of the target."""
    name = PurePosixPath(member.name)
    if not (member.isreg() or member.isdir()):
        raise TTCError(f"{archive} holds {member.name!r}, a link or a device: it is refused, nothing was unpacked")
    if name.is_absolute() or ".." in name.parts or "\\" in member.name or ":" in member.name:
        raise TTCError(f"{archive} holds {member.name!r}, outside its folder: it is refused, nothing was unpacked")
    return name
