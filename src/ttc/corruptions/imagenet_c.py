"""Generate ImageNet-C from a folder of images: ``<corruption>/<severity>/<path>``, cropped, as JPEG of quality 85."""

import hashlib
import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from threading import Event
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ttc.corruptions.apply import SMALLEST_SIDE, corrupt
from ttc.corruptions.manifest import CorruptionSettings, Manifest, check_separate, frost_record, open_manifest
from ttc.corruptions.pool import ImageProgress, explain_disk_errors, map_unordered
from ttc.corruptions.severity_tables import TableName
from ttc.errors import TTCError
from ttc.files import atomic, checksum, is_partial

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".gif"}
_CHUNK = 8


@dataclass(frozen=True)
class SourceImage:
    """An image of the source: its path in the source and in the folder of each severity."""

    source: PurePosixPath
    target: PurePosixPath

    @property
    def index(self) -> int:
        """A number derived from the path alone, so that adding images does not change the others."""
        return int.from_bytes(hashlib.sha256(str(self.source).encode()).digest()[:8], "little")


class FileOutcome(NamedTuple):
    """The images that could not be read, with the reason, and the number converted to RGB per kind."""

    unreadable: dict[str, str]
    converted: Counter[str]


def list_images(source: Path) -> list[SourceImage]:
    """List the images in a folder, sorted; names that are not JPEG become ``<stem>.JPEG``."""
    if not source.is_dir():
        raise TTCError(f"{source} is not a folder; give a folder of images")
    paths = sorted(path for path in source.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    names = [PurePosixPath(path.relative_to(source).as_posix()) for path in paths if not path.name.startswith(".")]
    if not names:
        raise TTCError(f"{source} contains no images ({', '.join(sorted(SUFFIXES))}); give a folder that does")
    targets: dict[PurePosixPath, PurePosixPath] = {}
    for name in names:
        target = name if name.suffix.lower() in {".jpg", ".jpeg"} else name.with_suffix(".JPEG")
        if target in targets:
            raise TTCError(f"{targets[target]} and {name} in {source} would both become {target}; rename one of them")
        targets[target] = name
    return [SourceImage(name, target) for target, name in targets.items()]


def read_image(path: Path, size: int) -> tuple[NDArray[np.uint8], str]:
    """Read an image as uint8 (H, W, 3), and the kind it was converted from: "grey", "RGBA", "16-bit" … or "".

    Its shorter side is resized to 8/7 of ``size`` and the centre is cropped; size 0 keeps the whole image.
    """
    with Image.open(path) as file:
        file.load()
        image: Image.Image = file
        kind = ""
        if image.mode.startswith("I"):  # 16-bit: Pillow would clip instead of scaling
            values = np.asarray(image)
            if values.min() < 0 or values.max() > 65535:
                raise ValueError(f"{image.mode} images with values beyond 16 bits are not supported")
            image, kind = Image.fromarray((values >> 8).astype(np.uint8)), "16-bit"
        elif image.mode == "F":
            raise ValueError("floating-point images are not supported")
        elif image.mode != "RGB":
            kind = {"L": "grey", "LA": "grey", "1": "grey"}.get(image.mode, image.mode)
        rgb = image.convert("RGB")
    if size:
        factor = round(size * 256 / 224) / min(rgb.size)
        shape = [max(round(side * factor), size) for side in rgb.size]
        rgb = rgb.resize((shape[0], shape[1]), Image.Resampling.BILINEAR)
        left, top = (shape[0] - size) // 2, (shape[1] - size) // 2
        rgb = rgb.crop((left, top, left + size, top + size))
    elif min(rgb.size) < SMALLEST_SIDE:
        raise ValueError(f"{rgb.width}x{rgb.height} pixels are below the minimum of {SMALLEST_SIDE}x{SMALLEST_SIDE}")
    return np.array(rgb), kind


def generate_imagenet_c(
    source: Path,
    destination: Path,
    corruptions: Sequence[str],
    severities: Sequence[int],
    *,
    seed: int = 0,
    table: TableName | None = None,
    frost_dir: Path | None = None,
    size: int = 224,
    workers: int = 1,
    progress: ImageProgress = lambda made, found, total: None,
    converted: Callable[[Counter[str]], None] = lambda kinds: None,
) -> Manifest:
    """Write every image with every corruption and severity, skipping files that exist.

    Unreadable images are skipped and listed in the manifest. The checksum of a severity's folder is the SHA-256 of the
    lines that ``sha256sum`` prints for its files, sorted by path. ``progress`` may be called from any thread;
    ``converted`` is called at the end with the number of grey, RGBA … images converted to RGB.
    """
    check_separate(source, destination)
    entries = list_images(source)
    reading = f"resized and cropped to {size}" if size else "whole images"
    settings = CorruptionSettings("imagenet-c", seed, table or "nearest", [], frost_record(frost_dir), reading)
    with explain_disk_errors(destination):
        manifest = open_manifest(destination, settings)
    combinations = [(name, severity) for name in corruptions for severity in severities]

    def change(some: Sequence[SourceImage], stop: Event) -> FileOutcome:
        missing = {
            entry: [
                (name, severity)
                for name, severity in combinations
                if not (destination / name / str(severity) / entry.target).exists()
            ]
            for entry in some
        }
        images, unreadable, kinds = _read(source, [entry for entry in some if missing[entry]], size)
        for name, severity in combinations:
            if stop.is_set():
                break
            wanted = [entry for entry in images if (name, severity) in missing[entry]]
            for group in _same_shape(wanted, images):
                stack = np.stack([images[entry] for entry in group])
                indices = [entry.index for entry in group]
                result = corrupt(stack, name, severity, table=table, seed=seed, indices=indices, frost_dir=frost_dir)
                for entry, pixels in zip(group, result, strict=True):
                    _write_jpeg(pixels, destination / name / str(severity) / entry.target)
            progress(len(wanted), len(some) - len(wanted), len(entries) * len(combinations))
        return FileOutcome(unreadable, kinds)

    manifest.unreadable = {}
    kinds: Counter[str] = Counter()
    chunks = [entries[start : start + _CHUNK] for start in range(0, len(entries), _CHUNK)]
    with explain_disk_errors(destination):
        for outcome in map_unordered(change, chunks, workers):
            manifest.unreadable |= outcome.unreadable
            kinds += outcome.converted
        for name, severity in combinations:
            manifest.checksums[f"{name}/{severity}"] = _folder_checksum(destination / name / str(severity))
        manifest.unreadable = dict(sorted(manifest.unreadable.items()))
        manifest.save(destination)
    converted(kinds)
    return manifest


def _read(
    source: Path, entries: Sequence[SourceImage], size: int
) -> tuple[dict[SourceImage, NDArray[np.uint8]], dict[str, str], Counter[str]]:
    images: dict[SourceImage, NDArray[np.uint8]] = {}
    unreadable: dict[str, str] = {}
    kinds: Counter[str] = Counter()
    for entry in entries:
        try:
            images[entry], kind = read_image(source / entry.source, size)
            kinds += Counter([kind] if kind else [])
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # what Pillow raises
            unreadable[str(entry.source)] = str(error)
    return images, unreadable, kinds


def _same_shape(
    entries: Sequence[SourceImage], images: dict[SourceImage, NDArray[np.uint8]]
) -> Iterator[list[SourceImage]]:
    """Group images of the same shape, which can be stacked."""
    for shape in {images[entry].shape for entry in entries}:
        yield [entry for entry in entries if images[entry].shape == shape]


def _write_jpeg(pixels: NDArray[np.uint8], path: Path) -> None:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=85, optimize=True)
    with atomic(path) as part:
        part.write_bytes(buffer.getbuffer())


def _folder_checksum(folder: Path) -> str:
    """Return the checksum of a folder's listing and delete the partial files of a killed run."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        if is_partial(path):
            path.unlink()
        else:
            digest.update(f"{checksum(path)}  {path.relative_to(folder).as_posix()}\n".encode())
    return digest.hexdigest()
