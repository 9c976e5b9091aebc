"""Pictures as files in class folders: your own data, the ImageNet validation set, ImageNet-C."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from ttc.data.images import Indices, Labels, Pixels, validate_indices
from ttc.data.location import absent, dataset_folder
from ttc.errors import TTCError

SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
READ_WHOLE = 256 << 20  # up to this many bytes the checksum reads every file


@dataclass(frozen=True, eq=False)
class FolderImages:
    """Pictures decoded when asked for; the class index of a folder is its place in the sorted list of folders.

    ``size`` fits other pictures to a square: the shorter side is resized to ``size * 256/224``, the centre is kept.
    Pictures that are ``size`` by ``size`` already are never resampled. Without a size all must be equally large.
    The checksum covers relative paths and sizes of all files, and their bytes where they are 256 MB or less together.
    """

    name: str
    root: Path
    files: Sequence[Path] = field(repr=False)
    labels: Labels = field(repr=False)
    classes: tuple[str, ...] = field(repr=False)
    size: int | None = None

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    def __len__(self) -> int:
        return len(self.files)

    def pixels(self, indices: Indices) -> Pixels:
        paths = [self.files[i] for i in validate_indices(self.name, indices, len(self))]
        pictures = [picture(path, self.size) for path in paths]
        for path, decoded in zip(paths, pictures, strict=True):
            if decoded.shape != pictures[0].shape:
                raise TTCError(
                    f"{path} has {decoded.shape[1]} x {decoded.shape[0]} pixels, {paths[0].name} "
                    f"{pictures[0].shape[1]} x {pictures[0].shape[0]}: give one size, such as size=224, to fit them"
                )
        return np.stack(pictures) if pictures else np.empty((0, self.size or 0, self.size or 0, 3), np.uint8)

    @cached_property
    def checksum(self) -> str:
        sizes = [path.stat().st_size for path in self.files]
        whole = sum(sizes) <= READ_WHOLE
        digest = hashlib.sha256(f"size={self.size}".encode())
        for path, size in zip(self.files, sizes, strict=True):
            digest.update(f"\n{path.relative_to(self.root).as_posix()}:{size}".encode())
            if whole:
                digest.update(path.read_bytes())
        return digest.hexdigest()


def image_folder(root: Path, size: int | None = None, name: str | None = None) -> FolderImages:
    """The pictures below ``root``, one folder a class: ``root/<class>/…/<picture>``."""
    if not root.is_dir():
        raise TTCError(f"there is no image folder {root}: give a directory with one folder of pictures for each class")
    if size is not None and size < 1:
        raise TTCError(f"the image size must be at least 1 pixel, got {size}")
    folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not folders:
        raise TTCError(f"{root} has no class folders: put the pictures of each class into a folder of their own")
    files: list[Path] = []
    counts: list[int] = []
    for folder in folders:
        found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
        if not found:
            raise TTCError(
                f"the class folder {folder} has no pictures ({', '.join(sorted(SUFFIXES))}): add some, or remove the "
                "folder if it is no class (class numbers follow the sorted folder names)"
            )
        files += found
        counts.append(len(found))
    labels: Labels = np.repeat(np.arange(len(folders)), counts).astype(np.int64)
    return FolderImages(name or root.name, root, files, labels, tuple(path.name for path in folders), size)


def imagenet_c(root: Path, corruption: str, severity: int) -> FolderImages:
    """ImageNet-C at one corruption and severity, as published: 224 x 224, never resampled."""
    folder = dataset_folder(root, "ImageNet-C")
    if not folder.is_dir():
        raise absent("ImageNet-C", folder, "imagenet-c")
    if severity not in range(1, 6):
        raise TTCError(f"severity must be 1 to 5, got {severity}; clean images are the ImageNet validation folder")
    if not (folder / corruption / str(severity)).is_dir():
        known = sorted(path.name for path in folder.iterdir() if path.is_dir())
        raise TTCError(
            f"there is no {folder / corruption / str(severity)}; the corruptions there are: "
            f"{', '.join(known) or 'none'} (ttc data fetch imagenet-c gets them all)"
        )
    return _thousand(image_folder(folder / corruption / str(severity), 224, f"ImageNet-C {corruption} {severity}"))


def imagenet(root: Path) -> FolderImages:
    """The clean ImageNet validation set, ``imagenet/val/<wnid>/*.JPEG``: resized to 256, centre 224 kept."""
    folder = root / "imagenet" / "val"
    if not folder.is_dir():
        raise absent("the ImageNet validation set", folder, None)
    return _thousand(image_folder(folder, 224, "ImageNet val"))


def _thousand(images: FolderImages) -> FolderImages:
    """The images, refused unless all 1,000 classes are there: a missing folder would shift every later label."""
    if images.num_classes != 1000:
        raise TTCError(
            f"{images.root} has {images.num_classes} class folders, ImageNet has 1000: unpack it again, "
            "or read a part of the classes with image_folder and a model of your own"
        )
    return images


def picture(path: Path, size: int | None) -> Pixels:
    """The RGB pixels of one file, fitted to a square where ``size`` is given and differs."""
    try:
        with Image.open(path) as image:
            rgb = image.convert("RGB")
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise TTCError(f"cannot read the picture {path} ({error}): remove or replace it") from error
    if size is not None and rgb.size != (size, size):
        scale = round(size * 256 / 224) / min(rgb.size)
        wide, high = (max(size, round(side * scale)) for side in rgb.size)
        left, top = (wide - size) // 2, (high - size) // 2
        resized = rgb.resize((wide, high), Image.Resampling.BILINEAR)
        rgb = resized.crop((left, top, left + size, top + size))
    return np.asarray(rgb)
