"""Datasets and checkpoints on this machine: what is there, whether it is whole, and getting what is not."""

import difflib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from ttc.data.catalogue import GROUPS, SOURCES, DataFile, Source
from ttc.data.download import download, matches
from ttc.data.folders import SUFFIXES
from ttc.data.location import unwritable
from ttc.data.unpacking import unpack
from ttc.errors import TTCError
from ttc.files import atomic
from ttc.files import checksum as file_checksum

FetchProgress = Callable[[str, int, int | None], None]  # what is being done, bytes so far, bytes in all where known
PER_FOLDER = 50_000  # pictures of one ImageNet-C corruption and severity, and of the validation set


class SourceStatus(NamedTuple):
    """How a source stands on this machine, and why."""

    status: Literal["present", "missing", "damaged"]
    detail: str


def resolve_names(asked: str) -> tuple[str, ...]:
    """The catalogue's entries for a name, which may be a group such as ``imagenet-c``."""
    if asked in SOURCES or asked in GROUPS:
        return GROUPS.get(asked, (asked,))
    near = difflib.get_close_matches(asked, [*SOURCES, *GROUPS], 1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise TTCError(f"unknown data {asked!r}{hint}: choose one of {', '.join([*SOURCES, *GROUPS])}")


def source_status(name: str, root: Path, thorough: bool = False, step: FetchProgress | None = None) -> SourceStatus:
    """Whether ``name`` is at ``root``: by size and presence, or ``thorough``, by checksum and count."""
    source = SOURCES[name]
    paths = [*(part.path for part in source.parts), *source.folders]
    absent = [path for path in paths if not (root / path).exists()]
    if len(absent) == len(paths):
        return SourceStatus("missing", paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more")
    if absent:
        return SourceStatus("damaged", f"{len(absent)} of {len(paths)} are missing, such as {absent[0]}")
    done, total = 0, sum(part.size for part in source.parts)
    for part in source.parts:
        problem = _problem(root / part.path, part, thorough)
        if problem:
            return SourceStatus("damaged", f"{part.path} {problem}")
        done += part.size
        if step:
            step(f"check {part.path}", done, total)
    for index, folder in enumerate(source.folders):
        if thorough:
            count = sum(path.suffix.lower() in SUFFIXES for path in (root / folder).rglob("*"))
            if count != PER_FOLDER:
                return SourceStatus("damaged", f"{folder} has {count} pictures instead of {PER_FOLDER}")
        if step:
            step(f"count {folder}", index + 1, len(source.folders))
    checked = "checked" if thorough else "there, not checked"
    return SourceStatus(
        "present", checked if _has_checksums(root, source) else f"{checked}; no checksum to compare with"
    )


def fetch(
    name: str, root: Path, step: FetchProgress | None = None, keep_archive: bool = False, pause: float = 1.0
) -> SourceStatus:
    """Get ``name`` into ``root`` unless it is there and whole; the archive goes once its content is checked."""
    source = SOURCES[name]
    before = source_status(name, root, thorough=True, step=step)
    if before.status == "present":
        _record(root, source)
        return before
    if not source.file:
        raise TTCError(f"{source.title} cannot be fetched for you: {source.note}, below {root}")
    target = root / source.file
    by_hand = source.into is not None and target.is_file()
    if not (by_hand and source.checksum and matches(target, source.checksum)):
        _room_for(source, root)
        told = (lambda done, total: step(f"download {target.name}", done, total)) if step else None
        download(source.urls, target, source.checksum or _recorded(target), source.size, told, pause)
    if source.into is None:
        _record(root, source)
    else:
        unpacked = 0

        def advance(count: int) -> None:
            nonlocal unpacked
            unpacked += count
            if step:
                step(f"unpack {target.name}", unpacked, None)

        unpack(target, root / source.into, advance)
    after = source_status(name, root, thorough=True, step=step)
    if after.status != "present":
        raise TTCError(f"{source.title} was fetched but is not whole: {after.detail}; the archive is kept at {target}")
    if source.into is not None and not keep_archive:
        target.unlink()
    return after


def _problem(path: Path, part: DataFile, thorough: bool) -> str | None:
    size = path.stat().st_size
    if size < part.size:
        return f"has {size} bytes instead of {part.size}"
    expected = part.checksum or _recorded(path)
    if thorough and expected and not matches(path, expected):
        return f"has another checksum than {expected}"
    return None


def _has_checksums(root: Path, source: Source) -> bool:
    return bool(source.folders) or all(part.checksum or _recorded(root / part.path) for part in source.parts)


def _recorded(path: Path) -> str | None:
    """The checksum noted at the first download, in the format of ``sha256sum``."""
    note = path.with_name(path.name + ".sha256")
    return f"sha256:{note.read_text().split()[0]}" if note.exists() else None


def _record(root: Path, source: Source) -> None:
    for part in source.parts:
        path = root / part.path
        if part.checksum is None and _recorded(path) is None:
            with atomic(path.with_name(path.name + ".sha256")) as note:
                note.write_text(f"{file_checksum(path)}  {path.name}\n")


def _room_for(source: Source, root: Path) -> None:
    """Refuse before the download what would fill the disk after it."""
    if source.size is None:
        return
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(root, error) from error
    needed = source.size * (2 if source.into else 1)  # the archive and what comes out of it
    free = shutil.disk_usage(root).free
    if free < needed:
        raise TTCError(
            f"{source.title} needs {needed / 1e9:.1f} GB at {root}, {free / 1e9:.1f} GB are free: "
            "make room, or choose another directory with --data or TTC_DATA"
        )
