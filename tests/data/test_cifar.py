"""The readers against files written here by the datasets' own description of their layout."""

import hashlib
import sys
from pathlib import Path

import numpy as np
import pytest

from ttc.data import cifar, cifar_c
from ttc.data.cifar import Cifar
from ttc.data.images import Pixels
from ttc.errors import TTCError


def write_cifar(root: Path, dataset: Cifar, per_file: int = 3) -> tuple[Pixels, list[int]]:
    """Write small files record by record; return the images and the labels of train, then test."""
    rng = np.random.default_rng(1)
    ten = dataset == "cifar10"
    folder = root / ("cifar-10-batches-bin" if ten else "cifar-100-binary")
    folder.mkdir(parents=True)
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"] if ten else ["train.bin", "test.bin"]
    images, labels = [], []
    for name in names:
        content = b""
        for _ in range(per_file):
            image = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
            label = int(rng.integers(10 if ten else 100))
            planes = b"".join(image[:, :, channel].tobytes() for channel in range(3))
            content += (b"" if ten else b"\x07") + bytes([label]) + planes
            images.append(image)
            labels.append(label)
        (folder / name).write_bytes(content)
    return np.stack(images), labels


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100"])
def test_reads_images_and_labels(tmp_path: Path, dataset: Cifar) -> None:
    images, labels = write_cifar(tmp_path, dataset)
    train, test = cifar(tmp_path, dataset, train=True), cifar(tmp_path, dataset)
    assert len(train) + len(test) == len(images)
    assert len(test) == 3
    assert train.num_classes == test.num_classes == (10 if dataset == "cifar10" else 100)
    np.testing.assert_array_equal(np.concatenate([train.labels, test.labels]), labels)
    np.testing.assert_array_equal(
        np.concatenate([train.pixels(range(len(train))), test.pixels(range(len(test)))]), images
    )
    title = "CIFAR-10" if dataset == "cifar10" else "CIFAR-100"
    assert (train.name, test.name) == (f"{title} train, own copy", f"{title} test, own copy")


def test_the_folder_itself_may_be_given(tmp_path: Path) -> None:
    write_cifar(tmp_path, "cifar10")
    assert cifar(tmp_path / "cifar-10-batches-bin", "cifar10").checksum == cifar(tmp_path, "cifar10").checksum


def test_missing_says_where_and_how(tmp_path: Path) -> None:
    with pytest.raises(
        TTCError, match=rf"test_batch.bin\) was not found at {tmp_path}.*ttc data fetch cifar10.*TTC_DATA"
    ):
        cifar(tmp_path, "cifar10")


@pytest.mark.parametrize("size", [0, 3072, 3 * 3073 - 1])
def test_truncated_file(tmp_path: Path, size: int) -> None:
    write_cifar(tmp_path, "cifar10")
    path = tmp_path / "cifar-10-batches-bin" / "test_batch.bin"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(TTCError, match=f"has {size} bytes, not a whole number of 3073-byte records.*fetch cifar10"):
        cifar(tmp_path, "cifar10")


def test_label_out_of_range(tmp_path: Path) -> None:
    write_cifar(tmp_path, "cifar10")
    path = tmp_path / "cifar-10-batches-bin" / "test_batch.bin"
    path.write_bytes(b"\x0b" + path.read_bytes()[1:])
    with pytest.raises(TTCError, match="labels must lie in 0 … 9, found 11"):
        cifar(tmp_path, "cifar10")


def test_unknown_dataset(tmp_path: Path) -> None:
    with pytest.raises(TTCError, match=r"unknown CIFAR dataset 'cifar1000' .*; choose from: cifar10, cifar100"):
        cifar(tmp_path, "cifar1000")  # type: ignore[arg-type]


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """CIFAR-10-C with one corruption at its published shape; the ends of each severity hold their row numbers."""
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    array = np.lib.format.open_memmap(folder / "fog.npy", mode="w+", dtype=np.uint8, shape=(50_000, 32, 32, 3))
    for row in [end for start in range(0, 50_000, 10_000) for end in (start, start + 9_999)]:
        array[row, 0, 0, :2] = divmod(row, 256)  # the rest stays a hole in the file
    array.flush()
    np.save(folder / "labels.npy", np.tile(np.arange(10_000) % 10, 5).astype(np.uint8))
    return tmp_path


def test_cifar_c_severities_are_blocks_of_rows(published: Path) -> None:
    for severity in (1, 3, 5):
        images = cifar_c(published, "cifar10", "fog", severity)
        assert len(images) == 10_000
        pixels = images.pixels([0, 9_999]).astype(int)
        rows = pixels[:, 0, 0, 0] * 256 + pixels[:, 0, 0, 1]
        assert rows.tolist() == [(severity - 1) * 10_000, severity * 10_000 - 1]
        np.testing.assert_array_equal(images.labels, np.arange(10_000) % 10)
        assert images.labels.dtype == np.int64


def test_cifar_c_errors(published: Path, tmp_path: Path) -> None:
    with pytest.raises(TTCError, match="severity must be 1 to 5, got 0"):
        cifar_c(published, "cifar10", "fog", 0)
    with pytest.raises(TTCError, match=r"unknown corruption in .*CIFAR-10-C 'mist'; choose from: fog"):
        cifar_c(published, "cifar10", "mist", 5)
    with pytest.raises(TTCError, match=r"CIFAR-100-C was not found at .*ttc data fetch cifar100-c"):
        cifar_c(published, "cifar100", "fog", 5)
    np.save(published / "CIFAR-10-C" / "snow.npy", np.zeros((10, 32, 32, 3), np.uint8))
    with pytest.raises(TTCError, match=r"needs arrays of shape \(50000, 32, 32, 3\), snow has \(10, 32, 32, 3\)"):
        cifar_c(published, "cifar10", "snow", 5)
    (published / "CIFAR-10-C" / "labels.npy").unlink()
    with pytest.raises(TTCError, match=r"CIFAR-10-C \(labels.npy\) was not found at .*ttc data fetch cifar10-c"):
        cifar_c(published, "cifar10", "fog", 5)


@pytest.mark.parametrize("content", [b"", b"<!doctype html>", b"\x93NUMPY\x01\x00"])
def test_cifar_c_damaged_array(published: Path, content: bytes) -> None:
    (published / "CIFAR-10-C" / "snow.npy").write_bytes(content)
    with pytest.raises(TTCError, match=r"snow.npy is damaged .*ttc data fetch cifar10-c"):
        cifar_c(published, "cifar10", "snow", 5)


def test_cifar_c_truncated_array(published: Path) -> None:
    path = published / "CIFAR-10-C" / "fog.npy"
    with path.open("r+b") as file:
        file.truncate(1_000_000)
    with pytest.raises(TTCError, match=r"fog.npy is damaged .*ttc data fetch cifar10-c"):
        cifar_c(published, "cifar10", "fog", 5)


def test_by_path_of_a_folder_or_a_file(tmp_path: Path) -> None:
    write_cifar(tmp_path, "cifar100")
    (tmp_path / "cifar-100-binary").rename(tmp_path / "mine")
    for place in (tmp_path / "mine", tmp_path / "mine" / "test.bin"):
        assert len(cifar(place, "cifar100")) == 3


def test_files_with_the_official_checksum_are_no_own_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar(tmp_path, "cifar100")
    own = cifar(tmp_path, "cifar100")
    digest = hashlib.md5((tmp_path / "cifar-100-binary" / "test.bin").read_bytes()).hexdigest()
    monkeypatch.setattr(sys.modules["ttc.data.cifar"], "_OFFICIAL", {digest})
    official = cifar(tmp_path, "cifar100")
    assert (official.name, own.name) == ("CIFAR-100 test", "CIFAR-100 test, own copy")
    assert official.checksum == own.checksum
