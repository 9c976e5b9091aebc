"""Datasets by the names that commands take."""

from pathlib import Path

import pytest
from PIL import Image

from tests.data.test_cifar import write_cifar
from ttc.data import Fitting, open_dataset
from ttc.data.named import is_sorted_by_class
from ttc.errors import TTCError


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for index in (0, 3):
        (tmp_path / "photos" / str(index)).mkdir(parents=True)
        Image.new("RGB", (60 + index, 40), (index, 0, 0)).save(tmp_path / "photos" / str(index) / "a.png")
    return tmp_path / "photos"


def test_an_image_folder_is_fitted_to_the_model(photos: Path, tmp_path: Path) -> None:
    images = open_dataset(f"imagefolder:{photos}", tmp_path, Fitting(24, 28), 10)
    assert images.pixels([0, 1]).shape == (2, 24, 24, 3)
    assert (images.labels.tolist(), images.num_classes, images.name) == ([0, 3], 10, "photos")
    assert open_dataset(f"imagefolder:{photos}@16", tmp_path, Fitting(24, 28)).pixels([0]).shape == (1, 16, 16, 3)
    with pytest.raises(TTCError, match="set a size"):
        open_dataset(f"imagefolder:{photos}", tmp_path).pixels([0, 1])


def test_cifar_in_the_data_directory_or_by_path(tmp_path: Path) -> None:
    write_cifar(tmp_path / "data", "cifar100")
    by_name = open_dataset("cifar100", tmp_path / "data")
    assert open_dataset(f"cifar100:{tmp_path / 'data'}", tmp_path).checksum == by_name.checksum


def test_an_unknown_name_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(TTCError, match=r"unknown dataset 'cifar1' .*choose from: embedded, .*imagefolder:PATH"):
        open_dataset("cifar1", tmp_path)
    with pytest.raises(TTCError, match=r"unknown dataset 'imagefolder'"):
        open_dataset("imagefolder", tmp_path)


def test_folders_are_sorted_by_class() -> None:
    assert is_sorted_by_class("imagefolder:x")
    assert not is_sorted_by_class("cifar100:x")
