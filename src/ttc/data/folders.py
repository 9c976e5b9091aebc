"""Image files in class folders: your own data, the ImageNet validation set, ImageNet-C."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from ttc.data.images import Indices, Labels, Pixels, validate_indices
from ttc.data.location import absent, dataset_folder
from ttc.errors import TTCError, unknown

SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
READ_WHOLE = 256 << 20  # up to this many bytes the checksum reads every file


@dataclass(frozen=True, eq=False)
class FolderImages:
    """Image files decoded on demand; classes are numbered in the sorted order of their folders.

    With a ``size``, images of another size are fitted to a square: the shorter side is resized to ``size * 256/224``
    and the centre is cropped. Images that are ``size`` by ``size`` already are never resampled. Without a ``size`` all
    images must have the same size. The checksum covers the relative paths and sizes of all files, and their bytes if
    they total at most 256 MB.
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
        images = [read_rgb(path, self.size) for path in paths]
        for path, image in zip(paths, images, strict=True):
            if image.shape != images[0].shape:
                raise TTCError(
                    f"{path} has {image.shape[1]} x {image.shape[0]} pixels, {paths[0].name} "
                    f"{images[0].shape[1]} x {images[0].shape[0]}: set a size, such as size=224, to fit both"
                )
        return np.stack(images) if images else np.empty((0, self.size or 0, self.size or 0, 3), np.uint8)

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
    """Open the images in ``root``, which has one folder per class: ``root/<class>/…/<image file>``.

    Args:
        root: The folder that contains the class folders.
        size: Resize and centre-crop images of another size to ``size`` x ``size``; None keeps them unchanged.
        name: The name of the dataset in result tables; by default the name of ``root``.

    Returns:
        The dataset; class numbers follow the sorted folder names.

    Raises:
        TTCError: The folder or its class folders do not exist, a class has no images, or the size is below 1.
    """
    if not root.is_dir():
        raise TTCError(f"there is no image folder {root}: give a directory with one folder of images per class")
    if size is not None and size < 1:
        raise TTCError(f"the image size must be at least 1 pixel, got {size}")
    folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not folders:
        raise TTCError(f"{root} has no class folders: put the images of each class into a folder of their own")
    files: list[Path] = []
    counts: list[int] = []
    for folder in folders:
        found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
        if not found:
            raise TTCError(
                f"the class folder {folder} has no images ({', '.join(sorted(SUFFIXES))}): add some, or remove the "
                "folder if it is not a class (class numbers follow the sorted folder names)"
            )
        files += found
        counts.append(len(found))
    labels: Labels = np.repeat(np.arange(len(folders)), counts).astype(np.int64)
    return FolderImages(name or root.name, root, files, labels, tuple(path.name for path in folders), size)


def imagenet_c(root: Path, corruption: str, severity: int) -> FolderImages:
    """Open the published ImageNet-C images of one corruption and severity: 224 x 224, never resampled.

    Args:
        root: The data directory, or the ImageNet-C folder itself.
        corruption: The name of a corruption, such as ``"fog"``.
        severity: 1 … 5.

    Returns:
        The dataset.

    Raises:
        TTCError: The images are missing or incomplete, or the corruption or severity does not exist.
    """
    folder = dataset_folder(root, "ImageNet-C")
    if not folder.is_dir():
        raise absent("ImageNet-C", folder, "imagenet-c")
    if severity not in range(1, 6):
        raise TTCError(f"severity must be 1 to 5, got {severity}; the clean images are the ImageNet validation set")
    if not (folder / corruption / str(severity)).is_dir():
        known = sorted(path.name for path in folder.iterdir() if path.is_dir())
        if corruption not in known:
            raise unknown(f"corruption in {folder}", corruption, known)
        raise absent(f"{corruption} at severity {severity}", folder / corruption / str(severity), "imagenet-c")
    return _require_all_classes(
        image_folder(folder / corruption / str(severity), 224, f"ImageNet-C {corruption} {severity}")
    )


def imagenet(root: Path) -> FolderImages:
    """Open the clean ImageNet validation set, ``imagenet/val/<wnid>/*.JPEG``: resized to 256, centre-cropped to 224.

    Args:
        root: The data directory.

    Returns:
        The dataset.

    Raises:
        TTCError: The images are missing or not sorted into 1,000 class folders.
    """
    folder = root / "imagenet" / "val"
    if not folder.is_dir():
        raise absent("the ImageNet validation set", folder, None)
    return _require_all_classes(image_folder(folder, 224, "ImageNet val"))


def _require_all_classes(images: FolderImages) -> FolderImages:
    """Return the images; reject them unless all 1,000 classes exist, as a missing one would shift later labels."""
    if images.num_classes != 1000:
        raise TTCError(
            f"{images.root} has {images.num_classes} class folders, ImageNet has 1000: unpack it again, "
            "or open a subset of the classes with image_folder and use your own model"
        )
    return images


def read_rgb(path: Path, size: int | None) -> Pixels:
    """Decode one image file to RGB, fitted to a square of ``size`` pixels unless it has that size."""
    try:
        with Image.open(path) as image:
            rgb = image.convert("RGB")
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise TTCError(f"cannot read the image {path} ({error}): remove or replace it") from error
    if size is not None and rgb.size != (size, size):
        scale = round(size * 256 / 224) / min(rgb.size)
        wide, high = (max(size, round(side * scale)) for side in rgb.size)
        left, top = (wide - size) // 2, (high - size) // 2
        resized = rgb.resize((wide, high), Image.Resampling.BILINEAR)
        rgb = resized.crop((left, top, left + size, top + size))
    return np.asarray(rgb)
