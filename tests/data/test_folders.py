import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ttc.data import Fitting, image_folder, imagenet, imagenet_c
from ttc.errors import TTCError


def save(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (8, 8)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    save(tmp_path / "dog" / "b.png", (0, 255, 0))
    save(tmp_path / "dog" / "deeper" / "a.PNG", (0, 0, 255))
    save(tmp_path / "cat" / "z.bmp", (255, 0, 0))
    (tmp_path / "dog" / "notes.txt").write_text("no image")
    (tmp_path / "README").write_text("no class")
    (tmp_path / ".hidden").mkdir()
    return tmp_path


def test_classes_are_sorted_folders(pets: Path) -> None:
    images = image_folder(pets)
    assert (images.classes, images.num_classes, len(images)) == (("cat", "dog"), 2, 3)
    assert images.labels.tolist() == [0, 1, 1]
    assert images.pixels([0, 1, 2])[:, 0, 0].tolist() == [[255, 0, 0], [0, 255, 0], [0, 0, 255]]
    assert images.pixels([]).shape[0] == 0


def test_grey_and_transparent_images_become_rgb(pets: Path) -> None:
    Image.new("L", (8, 8), 7).save(pets / "cat" / "y.png")
    Image.new("RGBA", (8, 8), (1, 2, 3, 128)).save(pets / "cat" / "x.png")
    assert image_folder(pets).pixels([0, 1])[:, 0, 0].tolist() == [[1, 2, 3], [7, 7, 7]]


def test_checksum_follows_names_and_bytes(pets: Path) -> None:
    before = image_folder(pets).checksum
    assert image_folder(pets, size=4).checksum != before
    path = pets / "cat" / "z.bmp"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"\x01")  # the same size
    assert image_folder(pets).checksum != before
    path.write_bytes(content)
    assert image_folder(pets).checksum == before
    path.rename(pets / "cat" / "y.bmp")
    assert image_folder(pets).checksum != before


def test_size_fits_the_centre_and_leaves_fitting_images_alone(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    exact = rng.integers(0, 256, (14, 14, 3), dtype=np.uint8)
    (tmp_path / "a").mkdir()
    Image.fromarray(exact).save(tmp_path / "a" / "exact.png")
    wide = np.zeros((32, 96, 3), np.uint8)
    wide[:, 32:64] = 255  # the centre third
    Image.fromarray(wide).save(tmp_path / "a" / "wide.png")
    pixels = image_folder(tmp_path, size=14).pixels([0, 1])
    np.testing.assert_array_equal(pixels[0], exact)
    assert pixels[1][:, 1:-1].min() == 255  # small images are not cropped further than to a square
    with pytest.raises(TTCError, match=r"wide.png has 96 x 32 pixels, exact.png 14 x 14: set a size"):
        image_folder(tmp_path).pixels([0, 1])


def test_rejections(pets: Path, tmp_path: Path) -> None:
    with pytest.raises(TTCError, match="there is no image folder"):
        image_folder(tmp_path / "nowhere")
    with pytest.raises(TTCError, match="at least 1 pixel, got 0"):
        image_folder(pets, size=0)
    (tmp_path / "bird").mkdir()
    with pytest.raises(TTCError, match=r"class folder .*bird has no images .*remove the folder"):
        image_folder(tmp_path)


def test_an_empty_folder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(TTCError, match="has no class folders"):
        image_folder(tmp_path)


@pytest.mark.parametrize("content", [b"", b"not an image"])
def test_a_broken_image_is_named(pets: Path, content: bytes) -> None:
    (pets / "cat" / "z.bmp").write_bytes(content)
    with pytest.raises(TTCError, match=r"cannot read the image .*z.bmp"):
        image_folder(pets).pixels([0])


def test_a_truncated_image_is_named(pets: Path) -> None:
    path = pets / "cat" / "z.bmp"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(TTCError, match=r"cannot read the image .*z.bmp"):
        image_folder(pets).pixels([0])


@pytest.fixture(scope="module")
def thousand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ImageNet-C's layout with one small image per class."""
    root = tmp_path_factory.mktemp("imagenet")
    source = root / "image.JPEG"
    save(source, (9, 9, 9), (224, 224))
    for index in range(1000):
        folder = root / "ImageNet-C" / "fog" / "5" / f"n{index:08}"
        folder.mkdir(parents=True)
        (folder / "ILSVRC2012_val_00000001.JPEG").hardlink_to(source)
    return root


def test_imagenet_c(thousand: Path) -> None:
    images = imagenet_c(thousand, "fog", 5)
    assert (len(images), images.num_classes, images.name) == (1000, 1000, "ImageNet-C fog 5")
    assert images.labels.tolist() == list(range(1000))
    assert images.pixels([999]).shape == (1, 224, 224, 3)
    assert len(imagenet_c(thousand / "ImageNet-C", "fog", 5)) == 1000


def test_imagenet_rejections(thousand: Path, tmp_path: Path) -> None:
    with pytest.raises(TTCError, match=r"ImageNet-C was not found at .*ttc data fetch imagenet-c"):
        imagenet_c(tmp_path, "fog", 5)
    with pytest.raises(TTCError, match=r"unknown corruption in .*ImageNet-C 'snow'; choose from: fog"):
        imagenet_c(thousand, "snow", 5)
    with pytest.raises(TTCError, match=r"fog at severity 4 was not found at .*fog.4; run: ttc data fetch imagenet-c"):
        imagenet_c(thousand, "fog", 4)
    with pytest.raises(TTCError, match="severity must be 1 to 5, got 6"):
        imagenet_c(thousand, "fog", 6)
    save(tmp_path / "imagenet" / "val" / "n00000001" / "a.JPEG", (1, 1, 1))
    with pytest.raises(TTCError, match="has 1 class folders, ImageNet has 1000"):
        imagenet(tmp_path)
    with pytest.raises(TTCError, match=r"the ImageNet validation set was not found at .*ttc doctor"):
        imagenet(thousand)


@pytest.fixture
def numbered(tmp_path: Path) -> Path:
    for name in ("10", "2", "0007"):
        save(tmp_path / name / "a.png", (int(name), 0, 0))
    return tmp_path


def test_numbers_are_class_indices(numbered: Path) -> None:
    images = image_folder(numbered)
    assert images.labels.tolist() == [2, 7, 10]
    assert images.pixels(range(3))[:, 0, 0, 0].tolist() == [2, 7, 10]
    assert images.num_classes == 11
    assert image_folder(numbered, num_classes=1000).num_classes == 1000
    assert (images.classes[7], images.classes[8]) == ("0007", "8")


def test_labels_must_fit_the_model(numbered: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(
        TTCError, match=r"has images of class 10, the model has the classes 0 to 9: name the folders by"
    ):
        image_folder(numbered, num_classes=10)
    save(numbered / "02" / "b.png", (0, 0, 0))
    with pytest.raises(TTCError, match=r"the folders 02 and 2 in .* are both class 2"):
        image_folder(numbered)
    named = tmp_path_factory.mktemp("named")
    for name in ("n01", "n02"):
        save(named / name / "a.png", (0, 0, 0))
    with pytest.raises(TTCError, match=r"has 2 class folders, the model has 1000 classes: .* class index, 0 to 999"):
        image_folder(named, num_classes=1000)
    assert image_folder(named, num_classes=2).labels.tolist() == [0, 1]


def test_checksum_follows_labels_and_fitting(numbered: Path) -> None:
    before = image_folder(numbered, 8).checksum
    assert image_folder(numbered, Fitting.to(8)).checksum == before
    assert image_folder(numbered, Fitting(8, 9)).checksum != before
    (numbered / "2").rename(numbered / "3")
    assert image_folder(numbered, 8).checksum != before


def test_a_folder_that_changes_during_a_run_is_rejected(pets: Path) -> None:
    images = image_folder(pets)
    path = pets / "cat" / "z.bmp"
    save(path, (1, 2, 3))
    assert images.pixels([0])[0, 0, 0].tolist() == [1, 2, 3]  # before the checksum was asked for, nothing has begun
    before = images.checksum
    os.utime(path, ns=(0, 0))
    with pytest.raises(TTCError, match=r"z.bmp changed after .* was opened.* finished results stay valid, run the"):
        images.pixels([0])
    assert len(images.pixels([1, 2])) == 2
    path.unlink()
    with pytest.raises(TTCError, match=r"z.bmp changed after"):
        images.pixels([0])
    save(path, (9, 9, 9))
    assert image_folder(pets).checksum != before


def test_the_checksum_of_a_large_folder_reads_both_ends(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ttc.data.folders.READ_WHOLE", 0)
    path = pets / "cat" / "z.bmp"
    path.write_bytes(bytes(20_000))
    before = image_folder(pets).checksum
    for place, seen in ((0, True), (4095, True), (10_000, False), (19_999, True)):
        content = bytearray(20_000)
        content[place] = 1
        path.write_bytes(content)
        assert (image_folder(pets).checksum != before) == seen
