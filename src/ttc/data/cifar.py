"""CIFAR-10 and CIFAR-100 in their binary and Python formats, and CIFAR-10-C and CIFAR-100-C as NumPy arrays."""

from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ttc.data.catalogue import CIFAR10_MD5, CIFAR100_MD5, CIFAR_PYTHON_MD5
from ttc.data.cifar_pickle import read_pickled_batch
from ttc.data.images import ArrayImages, Images, Labels, Pixels
from ttc.data.location import absent, dataset_folder
from ttc.errors import TTCError, unknown
from ttc.files import checksum as file_checksum

Cifar = Literal["cifar10", "cifar100"]
PER_SEVERITY = 10_000  # CIFAR-C stores the test images once per severity, mildest first


class _Layout(NamedTuple):
    title: str
    folder: str
    label_bytes: int  # CIFAR-100 has a coarse label before the fine one
    num_classes: int
    train: tuple[str, ...]
    test: tuple[str, ...]
    corrupted: str
    python: str  # the folder of the Python format, whose files have the same names without ".bin"


LAYOUTS: dict[str, _Layout] = {
    "cifar10": _Layout(
        "CIFAR-10",
        "cifar-10-batches-bin",
        1,
        10,
        tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
        ("test_batch.bin",),
        "CIFAR-10-C",
        "cifar-10-batches-py",
    ),
    "cifar100": _Layout(
        "CIFAR-100", "cifar-100-binary", 2, 100, ("train.bin",), ("test.bin",), "CIFAR-100-C", "cifar-100-python"
    ),
}
_OFFICIAL = {*CIFAR10_MD5.values(), *CIFAR100_MD5.values(), *CIFAR_PYTHON_MD5}


def cifar(root: Path, dataset: Cifar, train: bool = False) -> Images:
    """Read the clean images of CIFAR into memory: 31 MB of test images or 154 MB of training images.

    Files in the official layout whose checksum is not the official one, such as a reordered copy, are accepted: the
    name of the dataset then ends in ``own copy``, and its checksum is that of these images.

    Args:
        root: The data directory, the CIFAR folder itself (binary or Python format), or one file of test images.
        dataset: ``"cifar10"`` or ``"cifar100"``.
        train: Read the training images instead of the test images.

    Returns:
        The dataset.

    Raises:
        TTCError: The files are missing or damaged, or the dataset is unknown.
    """
    layout = _layout(dataset)
    paths = _locate(root, layout, layout.train if train else layout.test)
    parts = [_read(path, layout, dataset) for path in paths]
    pixels: Pixels = np.concatenate([pixels for pixels, _ in parts])
    labels: Labels = np.concatenate([labels for _, labels in parts])
    name = f"{layout.title} {'train' if train else 'test'}"
    own = any(file_checksum(path, "md5") not in _OFFICIAL for path in paths)
    return ArrayImages(f"{name}, own copy" if own else name, pixels, labels, layout.num_classes)


def has_test_images(root: Path, dataset: Cifar) -> bool:
    """Whether the test images of a CIFAR are in a folder, or in their usual folder below it.

    Args:
        root: The data directory, or the CIFAR folder itself.
        dataset: ``"cifar10"`` or ``"cifar100"``.
    """
    layout = _layout(dataset)
    return root.is_dir() and all(path.is_file() for path in _locate(root, layout, layout.test))


def cifar_c(root: Path, dataset: Cifar, corruption: str, severity: int) -> Images:
    """Open the published corrupted test images of one corruption and severity, memory-mapped.

    Args:
        root: The data directory, or the CIFAR-C folder itself.
        dataset: ``"cifar10"`` or ``"cifar100"``.
        corruption: The name of a corruption, such as ``"fog"``.
        severity: 1 … 5.

    Returns:
        The dataset of 10,000 images.

    Raises:
        TTCError: The files are missing or damaged, or the corruption or severity does not exist.
    """
    layout = _layout(dataset)
    if severity not in range(1, 6):
        raise TTCError(f"severity must be 1 to 5, got {severity}; the clean images are those of CIFAR itself")
    folder = dataset_folder(root, layout.corrupted)
    if not folder.is_dir():
        raise absent(layout.corrupted, folder, f"{dataset}-c")
    arrays = _array(folder / f"{corruption}.npy", f"{dataset}-c"), _array(folder / "labels.npy", f"{dataset}-c")
    rows = slice((severity - 1) * PER_SEVERITY, severity * PER_SEVERITY)
    for array, shape in zip(arrays, ((5 * PER_SEVERITY, 32, 32, 3), (5 * PER_SEVERITY,)), strict=True):
        if array.shape != shape:
            raise TTCError(
                f"{layout.corrupted} needs arrays of shape {shape}, {corruption} has {array.shape}; "
                f"the file is damaged: run ttc data verify {dataset}-c"
            )
    name = f"{layout.corrupted} {corruption} {severity}"
    return ArrayImages(name, arrays[0][rows], arrays[1][rows].astype(np.int64), layout.num_classes)


def _layout(dataset: str) -> _Layout:
    if dataset not in LAYOUTS:
        raise unknown("CIFAR dataset", dataset, LAYOUTS)
    return LAYOUTS[dataset]


def _locate(root: Path, layout: _Layout, files: tuple[str, ...]) -> list[Path]:
    """Return the files in ``root`` or in their folder below it, in the format that is there; binary if none is."""
    if root.is_file():
        return [root]
    pickled = tuple(file.removesuffix(".bin") for file in files)
    binary = dataset_folder(root, layout.folder)
    for folder, names in (
        (binary, files),
        (dataset_folder(root, layout.python), pickled),
        (root, files),
        (root, pickled),
    ):
        if (folder / names[0]).is_file():
            return [folder / name for name in names]
    return [binary / name for name in files]


def _read(path: Path, layout: _Layout, dataset: str) -> tuple[Pixels, Labels]:
    """Read the images (N, 32, 32, 3) and labels of one file.

    In the binary format a record is the label byte (CIFAR-100: coarse, then fine label) and 3 x 1024 pixel bytes: red,
    green, blue planes.
    """
    if not path.is_file():
        raise absent(f"{layout.title} ({path.name})", path, dataset)
    if path.suffix != ".bin":
        planes, labels = read_pickled_batch(path, "labels" if layout.label_bytes == 1 else "fine_labels")
    else:
        length = layout.label_bytes + 3072
        size = path.stat().st_size
        if size == 0 or size % length:
            raise TTCError(
                f"{path} has {size} bytes, not a whole number of {length}-byte records: the file is damaged; "
                f"delete it and run: ttc data fetch {dataset}"
            )
        records = np.fromfile(path, np.uint8).reshape(-1, length)
        planes, labels = records[:, layout.label_bytes :], records[:, layout.label_bytes - 1].astype(np.int64)
    images = planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), labels


def _array(path: Path, source: str) -> NDArray[np.uint8]:
    if path.stem == "labels" and not path.is_file():
        raise absent(f"{path.parent.name} ({path.name})", path, source)
    if not path.is_file():
        known = sorted(file.stem for file in path.parent.glob("*.npy") if file.stem != "labels")
        raise unknown(f"corruption in {path.parent}", path.stem, known)
    try:
        array: NDArray[np.uint8] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise TTCError(f"{path} is damaged ({error}); delete it and run: ttc data fetch {source}") from error
    return array
