"""Read CIFAR's Python format, which is a pickle, without executing code."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from ttc.data.images import Labels, Pixels
from ttc.errors import TTCError

_ARRAY_PARTS = {  # what a pickled NumPy array consists of, by its old and new addresses; none runs code of the file
    *(("numpy." + core + ".multiarray", "_reconstruct") for core in ("core", "_core")),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class _ArrayUnpickler(pickle.Unpickler):
    """Rebuilds containers, numbers, bytes and arrays; rejects anything else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ARRAY_PARTS:
            raise pickle.UnpicklingError(f"it contains code, {module}.{name}, which is not run")
        return super().find_class(module, name)


def read_pickled_batch(path: Path, labels_key: str) -> tuple[Pixels, Labels]:
    """Read the planes (N, 3072) and labels (N,) of one file, such as ``cifar-100-python/test``.

    Args:
        path: The file.
        labels_key: Where the labels are: ``"labels"`` in CIFAR-10, ``"fine_labels"`` in CIFAR-100.

    Returns:
        The pixels of each image as red, green and blue planes, and the labels.

    Raises:
        TTCError: The file is damaged, contains code, or has another content.
    """
    try:
        with path.open("rb") as file:
            content = _ArrayUnpickler(file, encoding="bytes").load()
    except Exception as error:  # damaged bytes make the unpickler raise any exception
        raise TTCError(f"{path} cannot be read as CIFAR in the Python format ({error}): copy it again") from error
    values = {_text(key): value for key, value in content.items()} if isinstance(content, dict) else {}
    try:
        planes = np.asarray(values["data"], np.uint8).reshape(-1, 3072)
        labels = np.asarray(values[labels_key], np.int64)
    except (KeyError, ValueError, TypeError) as error:
        raise TTCError(
            f"{path} is not CIFAR in the Python format: expected 'data' (N, 3072) and '{labels_key}'"
        ) from error
    return planes, labels


def _text(key: object) -> str:
    return key.decode("latin-1") if isinstance(key, bytes) else str(key)
