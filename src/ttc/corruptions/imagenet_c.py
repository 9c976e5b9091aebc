"""A folder of images to ImageNet-C: ``<corruption>/<severity>/<path>``, cropped to one size, JPEG of quality 85."""

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
from ttc.files import atomic, checksum

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".gif"}
_CHUNK = 8


@dataclass(frozen=True)
class SourceImage:
    """An image of the source: its path there and in every severity's folder."""

    source: PurePosixPath
    target: PurePosixPath

    @property
    def index(self) -> int:
        """A number from the path alone, so that images added later change nothing for the others."""
        return int.from_bytes(hashlib.sha256(str(self.source).encode()).digest()[:8], "little")


class FileOutcome(NamedTuple):
    """What was met while reading some pictures: those that could not be read, and kinds that were converted."""

    unreadable: dict[str, str]
    converted: Counter[str]


def list_images(source: Path) -> list[SourceImage]:
    """The images below a folder, sorted; names that are not JPEG become ``<stem>.JPEG``."""
    if not source.is_dir():
        raise TTCError(f"{source} is not a folder; name the folder that holds the images")
    paths = sorted(path for path in source.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    names = [PurePosixPath(path.relative_to(source).as_posix()) for path in paths if not path.name.startswith(".")]
    if not names:
        raise TTCError(f"{source} holds no images ({', '.join(sorted(SUFFIXES))}); name a folder that does")
    targets: dict[PurePosixPath, PurePosixPath] = {}
    for name in names:
        target = name if name.suffix.lower() in {".jpg", ".jpeg"} else name.with_suffix(".JPEG")
        if target in targets:
            raise TTCError(f"{targets[target]} and {name} in {source} would both become {target}; rename one of them")
        targets[target] = name
    return [SourceImage(name, target) for target, name in targets.items()]


def read_image(path: Path, size: int) -> tuple[NDArray[np.uint8], str]:
    """The image as uint8 (H, W, 3), and the kind it was converted from: "grey", "RGBA", "16-bit" … or nothing.

    Its shorter side is resized to 8/7 of ``size`` and the centre is cut out; size 0 keeps it whole.
    """
    with Image.open(path) as file:
        file.load()
        image: Image.Image = file
        kind = ""
        if image.mode.startswith("I"):  # of 16 bits; Pillow would clip where it should scale
            values = np.asarray(image)
            if values.min() < 0 or values.max() > 65535:
                raise ValueError(f"{image.mode} images with values beyond 16 bits are not supported")
            image, kind = Image.fromarray((values >> 8).astype(np.uint8)), "16-bit"
        elif image.mode == "F":
            raise ValueError("floating-point images are not supported")
        elif image.mode != "RGB":
            kind = {"L": "grey", "LA": "grey", "1": "grey"}.get(image.mode, image.mode)
        picture = image.convert("RGB")
    if size:
        factor = round(size * 256 / 224) / min(picture.size)
        shape = [max(round(side * factor), size) for side in picture.size]
        picture = picture.resize((shape[0], shape[1]), Image.Resampling.BILINEAR)
        left, top = (shape[0] - size) // 2, (shape[1] - size) // 2
        picture = picture.crop((left, top, left + size, top + size))
    elif min(picture.size) < SMALLEST_SIDE:
        raise ValueError(f"{picture.width}x{picture.height} pixels are fewer than {SMALLEST_SIDE} on a side")
    return np.array(picture), kind


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
    """Write every image under every corruption and severity; files that are there are kept.

    An image that cannot be read is left out and named in the manifest. The checksum of a severity's folder is the
    SHA-256 of the lines that ``sha256sum`` prints for its files, sorted by path. ``progress`` is called from any
    thread; ``converted`` at the end with how many grey, RGBA … images were read as RGB.
    """
    check_separate(source, destination)
    pictures = list_images(source)
    reading = f"resized and cropped to {size}" if size else "whole images"
    settings = CorruptionSettings("imagenet-c", seed, table or "nearest", [], frost_record(frost_dir), reading)
    with explain_disk_errors(destination):
        manifest = open_manifest(destination, settings)
    combinations = [(name, severity) for name in corruptions for severity in severities]

    def change(some: Sequence[SourceImage], stop: Event) -> FileOutcome:
        missing = {
            picture: [
                (name, severity)
                for name, severity in combinations
                if not (destination / name / str(severity) / picture.target).exists()
            ]
            for picture in some
        }
        images, unreadable, kinds = _read(source, [picture for picture in some if missing[picture]], size)
        for name, severity in combinations:
            if stop.is_set():
                break
            wanted = [picture for picture in images if (name, severity) in missing[picture]]
            for group in _same_shape(wanted, images):
                stack = np.stack([images[picture] for picture in group])
                indices = [picture.index for picture in group]
                result = corrupt(stack, name, severity, table=table, seed=seed, indices=indices, frost_dir=frost_dir)
                for picture, pixels in zip(group, result, strict=True):
                    _write_jpeg(pixels, destination / name / str(severity) / picture.target)
            progress(len(wanted), len(some) - len(wanted), len(pictures) * len(combinations))
        return FileOutcome(unreadable, kinds)

    manifest.unreadable = {}
    kinds: Counter[str] = Counter()
    chunks = [pictures[start : start + _CHUNK] for start in range(0, len(pictures), _CHUNK)]
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
    source: Path, pictures: Sequence[SourceImage], size: int
) -> tuple[dict[SourceImage, NDArray[np.uint8]], dict[str, str], Counter[str]]:
    images: dict[SourceImage, NDArray[np.uint8]] = {}
    unreadable: dict[str, str] = {}
    kinds: Counter[str] = Counter()
    for picture in pictures:
        try:
            images[picture], kind = read_image(source / picture.source, size)
            kinds += Counter([kind] if kind else [])
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # what Pillow raises
            unreadable[str(picture.source)] = str(error)
    return images, unreadable, kinds


def _same_shape(
    pictures: Sequence[SourceImage], images: dict[SourceImage, NDArray[np.uint8]]
) -> Iterator[list[SourceImage]]:
    """The pictures in groups of one shape, which can be stacked."""
    for shape in {images[picture].shape for picture in pictures}:
        yield [picture for picture in pictures if images[picture].shape == shape]


def _write_jpeg(pixels: NDArray[np.uint8], path: Path) -> None:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=85, optimize=True)
    with atomic(path) as part:
        part.write_bytes(buffer.getbuffer())


def _folder_checksum(folder: Path) -> str:
    """The checksum of a folder's listing; what a killed run left half written is removed."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        if path.name.startswith(".") and ".part" in path.name:
            path.unlink()
        else:
            digest.update(f"{checksum(path)}  {path.relative_to(folder).as_posix()}\n".encode())
    return digest.hexdigest()
