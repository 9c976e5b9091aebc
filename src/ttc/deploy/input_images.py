"""The images of a batch job: class folders, a plain folder of images, or an array file of CIFAR-C."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ttc.data import ArrayImages, Images, image_folder
from ttc.data.folders import SUFFIXES, FolderImages
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


def read_input_images(path: Path, size: int | None = None, severity: int = 5) -> InputImages:
    """Find the images at ``path``; they are read later, batch by batch.

    Args:
        path: A folder with one folder per class (labelled), a folder of images, or a ``.npy`` file of CIFAR-C, labelled
            if there is a ``labels.npy`` beside it.
        size: Resize and crop images of folders to this many pixels square.
        severity: Which part of a CIFAR-C file to use, 1 to 5.

    Returns:
        The images with their names and what is known of their classes.

    Raises:
        TTCError: If there are no images at ``path``.
    """
    if path.suffix == ".npy":
        return _read_array(path, severity)
    if not path.is_dir():
        raise TTCError(f"expected a folder of images or a .npy file of CIFAR-C, but {path} does not exist")
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES and file.is_file())
    if files:
        images = FolderImages(path.name, path, files, np.zeros(len(files), np.int64), ("unknown",), size)
    else:
        images = image_folder(path, size)
    names = [file.relative_to(path).as_posix() for file in images.files]
    return InputImages(images, names, None if files else images.classes, labelled=not files)


def _read_array(path: Path, severity: int) -> InputImages:
    array, labels_path = _load_array(path), path.with_name("labels.npy")
    if array.ndim != 4 or array.shape[3] != 3 or array.dtype != np.uint8 or len(array) == 0:
        raise TTCError(f"{path}: expected uint8 images of shape (N, H, W, 3), got {array.dtype} {array.shape}")
    found = _load_array(labels_path) if labels_path.is_file() else None
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
