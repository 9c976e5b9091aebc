"""The images of a batch job: class folders, any other folder of images, or an array file of CIFAR-C."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ttc.data import ArrayImages, Images
from ttc.data.decoding import Fitting
from ttc.data.folders import SUFFIXES
from ttc.deploy.photos import PhotoImages
from ttc.errors import TTCError

CIFAR_C_ROWS = 50_000  # of a published file: 10,000 images per severity


class InputImages(NamedTuple):
    """Images to predict.

    Args:
        images: The images, read batch by batch.
        names: A name for each.
        classes: The names of the classes, where known.
        labelled: Whether the labels of ``images`` are the true classes.
    """

    images: Images
    names: Sequence[str]
    classes: Sequence[str] | None
    labelled: bool

    def for_classes(self, num_classes: int) -> "InputImages":
        """Drop names and labels that cannot be those of a model with ``num_classes`` classes."""
        if self.classes is None or len(self.classes) == num_classes:
            return self
        return self._replace(classes=None, labelled=False)

    def class_name(self, index: int) -> str:
        """Return the name of a class, or its number where names are not known."""
        return self.classes[index] if self.classes else str(index)

    def fitted(self, fitting: Fitting | None) -> "InputImages":
        """Return the same images, fitted to another model; an array of CIFAR-C stays as it is."""
        if not isinstance(self.images, PhotoImages):
            return self
        return self._replace(images=self.images.fitted(fitting))


def read_input_images(path: Path, size: int | None = None, severity: int = 5, labels: bool = True) -> InputImages:
    """Find the images at ``path``; they are read later, batch by batch.

    Args:
        path: A folder with one folder per class (labelled), any other folder of images, at any depth, or a ``.npy``
            file of CIFAR-C, labelled if there is a ``labels.npy`` beside it. Hidden files and folders do not count.
        size: Resize and crop images of folders to this many pixels square.
        severity: Which part of a CIFAR-C file to use, 1 to 5.
        labels: Whether folders of images are classes and ``labels.npy`` has labels.

    Returns:
        The images with their names and what is known of their classes.

    Raises:
        TTCError: If there are no images at ``path``.
    """
    if path.suffix == ".npy" and path.is_file():
        return _read_array(path, severity, labels)
    if not path.is_dir():
        raise TTCError(f"expected a folder of images or a .npy file of CIFAR-C, but {path} {_what_it_is(path)}")
    found = _Folder.scan(path)
    if not found.files:
        raise TTCError(
            f"{path} has no images ({', '.join(sorted(SUFFIXES))}), in it or in its folders: give a folder of images"
        )
    labelled = labels and found.labels is not None
    fitting = None if size is None else Fitting.to(size)
    images = PhotoImages(path.name, path, found.files, found.labels if labelled else None, found.classes, fitting)
    names = [file.relative_to(path).as_posix() for file in found.files]
    return InputImages(images, names, found.classes if labelled else None, labelled)


def _what_it_is(path: Path) -> str:
    if not path.exists():
        return "does not exist"
    if path.suffix.lower() in SUFFIXES:
        return "is a single image: put it into a folder, and give the folder"
    return "is another kind of file; the order is: ttc adapt MODEL IMAGES"


@dataclass(frozen=True)
class _Folder:
    """The image files of a folder; with labels if all of them are in class folders."""

    files: list[Path]
    labels: NDArray[np.int64] | None
    classes: tuple[str, ...]

    @classmethod
    def scan(cls, root: Path) -> "_Folder":
        files = sorted(path for path in root.rglob("*") if _is_image(path, root))
        tops = [path.relative_to(root).parts[0] for path in files]
        classes = tuple(sorted(path.name for path in root.iterdir() if path.is_dir() and not _is_hidden(path.name)))
        if not set(tops) <= set(classes):  # images beside the folders: they are no classes
            return cls(files, None, ())
        return cls(files, np.array([classes.index(top) for top in tops], np.int64), classes)


def _is_image(path: Path, root: Path) -> bool:
    if path.suffix.lower() not in SUFFIXES or any(map(_is_hidden, path.relative_to(root).parts)):
        return False
    return path.is_file()


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"  # what a Mac puts beside the files of an archive


def _read_array(path: Path, severity: int, use_labels: bool) -> InputImages:
    array, labels_path = _load_array(path), path.with_name("labels.npy")
    if array.ndim != 4 or array.shape[3] != 3 or array.dtype != np.uint8 or len(array) == 0:
        raise TTCError(f"{path}: expected uint8 images of shape (N, H, W, 3), got {array.dtype} {array.shape}")
    found = _load_array(labels_path) if use_labels and labels_path.is_file() else None
    labelled = found is not None and found.shape == array.shape[:1]
    labels: NDArray[Any] = found if found is not None and labelled else np.zeros(len(array), np.int64)
    rows = slice((severity - 1) * 10_000, severity * 10_000) if len(array) == CIFAR_C_ROWS else slice(None)
    labels = labels[rows].astype(np.int64)
    images = ArrayImages(path.stem, array[rows], labels, int(labels.max()) + 1)
    first = rows.start or 0
    return InputImages(images, [f"{path.name}#{first + i}" for i in range(len(images))], None, labelled)


def _load_array(path: Path) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise TTCError(f"cannot read {path} ({error})") from error
    return array
