"""CIFAR's Python format against files pickled here as the official ones are."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ttc.data import cifar
from ttc.data.cifar_pickle import read_pickled_batch
from ttc.errors import TTCError


def write(path: Path, key: bytes, labels: list[int], seed: int = 0) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    images = np.random.default_rng(seed).integers(0, 256, (len(labels), 32, 32, 3), dtype=np.uint8)
    planes = images.transpose(0, 3, 1, 2).reshape(-1, 3072)
    path.write_bytes(pickle.dumps({b"data": planes, key: labels, b"batch_label": b"testing batch"}, protocol=2))
    return images


def test_cifar100(tmp_path: Path) -> None:
    images = write(tmp_path / "cifar-100-python" / "test", b"fine_labels", [3, 99])
    for root in (tmp_path, tmp_path / "cifar-100-python", tmp_path / "cifar-100-python" / "test"):
        found = cifar(root, "cifar100")
        np.testing.assert_array_equal(found.pixels([0, 1]), images)
        assert found.labels.tolist() == [3, 99]
    assert found.name == "CIFAR-100 test, own copy"


def test_cifar10(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    parts = [write(folder / f"data_batch_{i}", b"labels", [i], i) for i in range(1, 6)]
    write(folder / "test_batch", b"labels", [9])
    train = cifar(tmp_path, "cifar10", train=True)
    np.testing.assert_array_equal(train.pixels(range(5)), np.concatenate(parts))
    assert train.labels.tolist() == [1, 2, 3, 4, 5]
    assert cifar(tmp_path, "cifar10").labels.tolist() == [9]


def test_code_is_rejected_and_not_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    (tmp_path / "test").write_bytes(pickle.dumps({b"data": Trap()}))
    with pytest.raises(TTCError, match=r"contains code, (posix|nt).mkdir, which is not run"):
        read_pickled_batch(tmp_path / "test", "labels")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    "content",
    [[1, 2], {b"data": np.zeros((2, 5), np.uint8), b"labels": [0, 1]}, {b"data": np.zeros((2, 3072), np.uint8)}],
)
def test_another_content(tmp_path: Path, content: object) -> None:
    (tmp_path / "test").write_bytes(pickle.dumps(content))
    with pytest.raises(TTCError, match=r"is not CIFAR in the Python format: expected 'data' .* and 'labels'"):
        read_pickled_batch(tmp_path / "test", "labels")


def test_damaged(tmp_path: Path) -> None:
    (tmp_path / "test").write_bytes(b"\x80\x02}q")
    with pytest.raises(TTCError, match="cannot be read as CIFAR in the Python format"):
        read_pickled_batch(tmp_path / "test", "labels")
