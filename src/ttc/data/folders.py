"""Image files in class folders: your own data, the ImageNet validation set, ImageNet-C."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from ttc.data.decoding import Fitting, read_rgb
from ttc.data.images import Indices, Labels, Pixels, validate_indices
from ttc.data.location import absent, dataset_folder
from ttc.errors import TTCError, unknown

SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
READ_WHOLE = 256 << 20  # up to this many bytes the checksum reads every file
ENDS = 4096  # bytes that it reads of both ends of each file of a larger folder


@dataclass(frozen=True, eq=False)
class FolderImages:
    """Image files decoded on demand, so that memory holds one batch.

    With a ``size``, images of another size are fitted to a square: the shorter side is resized, by default to
    ``size * 256/224``, and the centre is cropped. Images that are ``size`` by ``size`` already are never resampled.
    Without a ``size`` all images must have the same size. The checksum covers the relative paths and sizes of all
    files, and their bytes: all if they total at most 256 MB, else 4 KB of both ends. A file that changes after the
    checksum was computed is rejected when it is read.
    """

    name: str
    root: Path
    files: Sequence[Path] = field(repr=False)
    labels: Labels = field(repr=False)
    classes: tuple[str, ...] = field(repr=False)
    size: int | Fitting | None = None

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @cached_property
    def fitting(self) -> Fitting | None:
        """How images are resized and cropped; None keeps their size."""
        return Fitting.to(self.size) if isinstance(self.size, int) else self.size

    def __len__(self) -> int:
        return len(self.files)

    def pixels(self, indices: Indices) -> Pixels:
        index = validate_indices(self.name, indices, len(self))
        self._reject_changed(index.tolist())
        paths = [self.files[i] for i in index]
        images = [read_rgb(path, self.fitting) for path in paths]
        for path, image in zip(paths, images, strict=True):
            if image.shape != images[0].shape:
                raise TTCError(
                    f"{path} has {image.shape[1]} x {image.shape[0]} pixels, {paths[0].name} "
                    f"{images[0].shape[1]} x {images[0].shape[0]}: set a size, such as size=224 or "
                    "imagefolder:PATH@224, to fit both"
                )
        side = self.fitting.side if self.fitting else 0
        return np.stack(images) if images else np.empty((0, side, side, 3), np.uint8)

    @cached_property
    def checksum(self) -> str:
        sizes = [size for size, _ in self._versions]
        whole = sum(sizes) <= READ_WHOLE
        digest = hashlib.sha256(f"size={self._size_text}".encode())
        for path, size, label in zip(self.files, sizes, self.labels.tolist(), strict=True):
            digest.update(f"\n{path.relative_to(self.root).as_posix()}:{size}:{label}".encode())
            digest.update(path.read_bytes() if whole else _ends(path, size))
        return digest.hexdigest()

    @property
    def _size_text(self) -> str:
        usual = self.fitting is None or self.fitting == Fitting.to(self.fitting.side)
        return str(self.fitting.side if usual and self.fitting else self.fitting)

    @cached_property
    def _versions(self) -> list[tuple[int, int]]:
        """The size and modification time of each file when the checksum was computed."""
        return [_version(path) for path in self.files]

    def _reject_changed(self, indices: list[int]) -> None:
        if "_versions" not in self.__dict__:
            return
        for i in indices:
            if _version(self.files[i]) != self._versions[i]:
                raise TTCError(
                    f"{self.files[i]} changed after {self.name} was opened, so its checksum no longer holds: finished "
                    "results stay valid, run the command again for results on the new images"
                )


def image_folder(
    root: Path, size: int | Fitting | None = None, name: str | None = None, num_classes: int | None = None
) -> FolderImages:
    """Open the images in ``root``, which has one folder per class: ``root/<class>/…/<image file>``.

    If all folder names are numbers they are the class indices, and classes may be absent; otherwise classes are
    numbered in the sorted order of the names.

    Args:
        root: The folder that contains the class folders.
        size: Resize and centre-crop images of another size to ``size`` x ``size``, or as a :class:`Fitting` says; None
            keeps them unchanged.
        name: The name of the dataset in result tables; by default the name of ``root``.
        num_classes: The number of classes of the model, which the folders must fit; by default that of the folders.

    Returns:
        The dataset.

    Raises:
        TTCError: The folder or its class folders do not exist or do not fit the model, a class has no images, or the
            size is below 1.
    """
    if not root.is_dir():
        raise TTCError(f"there is no image folder {root}: give a directory with one folder of images per class")
    if isinstance(size, int):
        size = Fitting.to(size)
    folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not folders:
        raise TTCError(f"{root} has no class folders: put the images of each class into a folder of their own")
    labelled = _label(root, folders, num_classes)
    files: list[Path] = []
    labels: list[int] = []
    for label, folder in sorted(labelled.items()):
        found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
        if not found:
            raise TTCError(
                f"the class folder {folder} has no images ({', '.join(sorted(SUFFIXES))}): add some, or remove the "
                "folder if it is not a class (class numbers follow the sorted folder names)"
            )
        files += found
        labels += [label] * len(found)
    total = num_classes or max(labelled) + 1
    classes = tuple(labelled[label].name if label in labelled else str(label) for label in range(total))
    return FolderImages(name or root.name, root, files, np.array(labels, np.int64), classes, size)


def _label(root: Path, folders: list[Path], num_classes: int | None) -> dict[int, Path]:
    """Return the class folders by label: their numbers, or their places in sorted order."""
    if not all(folder.name.isdecimal() for folder in folders):
        if num_classes is not None and len(folders) != num_classes:
            raise TTCError(
                f"{root} has {len(folders)} class folders, the model has {num_classes} classes: to use images of some "
                f"classes only, name the folders by class index, 0 to {num_classes - 1}"
            )
        return dict(enumerate(folders))
    labelled: dict[int, Path] = {}
    for folder in folders:
        other = labelled.setdefault(int(folder.name), folder)
        if other != folder:
            raise TTCError(f"the folders {other.name} and {folder.name} in {root} are both class {int(folder.name)}")
    if num_classes is not None and max(labelled) >= num_classes:
        raise TTCError(
            f"{root} has images of class {max(labelled)}, the model has the classes 0 to {num_classes - 1}: "
            "name the folders by the class indices of this model, or choose another model"
        )
    return labelled


def _version(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except FileNotFoundError:
        return -1, -1
    return found.st_size, found.st_mtime_ns


def _ends(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        start = file.read(ENDS)
        file.seek(max(len(start), size - ENDS))
        return start + file.read(ENDS)


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
