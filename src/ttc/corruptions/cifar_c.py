"""Generate CIFAR-C from CIFAR in its binary format: one ``.npy`` file per corruption, and the labels."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ttc.corruptions.apply import corrupt
from ttc.corruptions.manifest import CorruptionSettings, Manifest, check_separate, frost_record, open_manifest
from ttc.corruptions.pool import ImageProgress, explain_disk_errors, map_unordered
from ttc.corruptions.severity_tables import TableName
from ttc.errors import TTCError
from ttc.files import allocate, atomic, checksum

_PIXELS = 3 * 32 * 32
_CHUNK = 500
TEST_FILES = {"test_batch.bin": 1, "test.bin": 2}  # CIFAR-10 and CIFAR-100: label bytes before the pixels


class CifarFile(NamedTuple):
    """The memory-mapped records of a CIFAR file; the last label byte of a record is the class."""

    path: Path
    records: NDArray[np.uint8]  # (N, label bytes + 3072)

    def images(self, start: int, stop: int) -> NDArray[np.uint8]:
        """Return a range of images, channels last: (stop − start, 32, 32, 3)."""
        return self.records[start:stop, -_PIXELS:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)

    def labels(self) -> NDArray[np.uint8]:
        """Return the class of every image: (N,)."""
        return np.array(self.records[:, -_PIXELS - 1])


def find_cifar_file(source: Path) -> Path | None:
    """Return the CIFAR test file that ``source`` is or contains, or None."""
    if source.is_file():
        return source if source.suffix == ".bin" else None
    return next((source / name for name in TEST_FILES if (source / name).is_file()), None)


def open_cifar_file(source: Path) -> CifarFile:
    """Open the CIFAR test file that ``source`` is or contains."""
    path = find_cifar_file(source)
    if path is None:
        raise TTCError(f"{source} contains neither {' nor '.join(TEST_FILES)}; give a CIFAR folder in binary format")
    size = path.stat().st_size
    guesses = [TEST_FILES[path.name]] if path.name in TEST_FILES else [1, 2]
    fitting = [extra for extra in guesses if size and size % (_PIXELS + extra) == 0]
    if not fitting:
        sizes = " or ".join(str(_PIXELS + extra) for extra in guesses)
        raise TTCError(
            f"{path} is not a complete CIFAR file: {size} bytes is not a multiple of {sizes}; download it again"
        )
    return CifarFile(path, np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, _PIXELS + fitting[0]))


def generate_cifar_c(
    source: Path,
    destination: Path,
    corruptions: Sequence[str],
    severities: Sequence[int],
    *,
    seed: int = 0,
    table: TableName | None = None,
    frost_dir: Path | None = None,
    workers: int = 1,
    progress: ImageProgress = lambda made, found, total: None,
) -> Manifest:
    """Write ``<corruption>.npy`` (S·N, 32, 32, 3), one severity after the other, and ``labels.npy`` (S·N,).

    Until it is complete, a file is named ``.<corruption>.npy.part`` with a journal of its finished rows beside it, from
    which the next call resumes.
    """
    check_separate(source, destination)
    cifar = open_cifar_file(source)
    settings = CorruptionSettings(
        "cifar-c", seed, table or "cifar", list(severities), frost_record(frost_dir), checksum(cifar.path)
    )
    with explain_disk_errors(destination):
        manifest = open_manifest(destination, settings)
    rows = len(cifar.records) * len(severities)

    def done(made: int, found: int) -> None:
        progress(made, found, rows * len(corruptions))

    with explain_disk_errors(destination):
        if not (destination / "labels.npy").exists():
            with atomic(destination / "labels.npy") as part:
                np.save(part, np.tile(cifar.labels(), len(severities)))
        manifest.checksums["labels.npy"] = checksum(destination / "labels.npy")
        for corruption in corruptions:
            path = destination / f"{corruption}.npy"
            if path.name in manifest.checksums and path.exists():
                done(0, rows)
                continue

            def change(start: int, stop: Event, name: str = corruption) -> tuple[int, NDArray[np.uint8]]:
                block, first = divmod(start, len(cifar.records))
                images = cifar.images(first, first + _CHUNK)
                indices = range(first, first + len(images))
                level = severities[block]
                return start, corrupt(images, name, level, table=table, seed=seed, indices=indices, frost_dir=frost_dir)

            _write_rows(path, rows, len(cifar.records), change, workers, done)
            manifest.checksums[path.name] = checksum(path)
            manifest.save(destination)
    manifest.save(destination)
    return manifest


def _write_rows(
    path: Path,
    rows: int,
    images: int,
    change: Callable[[int, Event], tuple[int, NDArray[np.uint8]]],
    workers: int,
    done: Callable[[int, int], None],
) -> None:
    """Write the file in pieces, recording each finished piece in a journal."""
    part, journal = path.with_name(f".{path.name}.part"), path.with_name(f".{path.name}.done")
    starts = [base + first for base in range(0, rows, images) for first in range(0, images, _CHUNK)]
    finished = set(starts) & _journal_starts(journal) if part.exists() else set[int]()
    if not finished:
        journal.unlink(missing_ok=True)
        array = np.lib.format.open_memmap(part, "w+", np.uint8, (rows, 32, 32, 3))
    else:
        array = np.lib.format.open_memmap(part, "r+")
    allocate(part)  # a full disk must fail here: in mapped memory it would kill the process
    done(0, sum(min(_CHUNK, images - start % images) for start in finished))
    with journal.open("a") as notes:
        for start, piece in map_unordered(change, (start for start in starts if start not in finished), workers):
            array[start : start + len(piece)] = piece
            array.flush()
            notes.write(f"{start}\n")
            notes.flush()
            done(len(piece), 0)
    del array
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.replace(path)
    journal.unlink()


def _journal_starts(journal: Path) -> set[int]:
    """Return the first rows of the finished pieces; a last line truncated by a crash is ignored."""
    if not journal.exists():
        return set()
    lines = journal.read_text().split("\n")[:-1]
    return {int(line) for line in lines if line.isdigit()}
