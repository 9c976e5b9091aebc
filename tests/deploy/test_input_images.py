"""The images of a batch job: folders, arrays, and what is known of their classes."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import ttc
from ttc.deploy.input_images import read_input_images


def write_images(folder: Path, count: int) -> None:
    folder.mkdir(parents=True)
    for i in range(count):
        Image.new("RGB", (4, 4), (i, 0, 0)).save(folder / f"{i}.png")


def test_class_folders_are_labels_if_the_model_has_as_many_classes(tmp_path: Path) -> None:
    write_images(tmp_path / "cat", 2)
    write_images(tmp_path / "dog", 1)
    found = read_input_images(tmp_path)
    assert found.names == ["cat/0.png", "cat/1.png", "dog/0.png"]
    assert found.labelled
    assert found.for_classes(2) is found
    assert found.class_name(1) == "dog"
    other = found.for_classes(10)
    assert not other.labelled
    assert other.class_name(1) == "1"


def test_a_plain_folder_has_no_labels(tmp_path: Path) -> None:
    write_images(tmp_path / "photos", 3)
    found = read_input_images(tmp_path / "photos", size=2)
    assert found.names == ["0.png", "1.png", "2.png"]
    assert not found.labelled
    assert found.images.pixels([2]).shape == (1, 2, 2, 3)


def test_folders_need_not_be_classes(tmp_path: Path) -> None:
    write_images(tmp_path / "cat", 2)
    write_images(tmp_path / "dog" / "old", 1)
    (tmp_path / "emu").mkdir()
    found = read_input_images(tmp_path)
    assert found.names == ["cat/0.png", "cat/1.png", "dog/old/0.png"]
    assert (found.classes, found.images.labels.tolist()) == (("cat", "dog", "emu"), [0, 0, 1])  # a class without images
    assert not read_input_images(tmp_path, labels=False).labelled
    Image.new("RGB", (4, 4)).save(tmp_path / "beside.png")
    for hidden in (".thumbs", "__MACOSX"):
        write_images(tmp_path / hidden, 1)
    mixed = read_input_images(tmp_path)
    assert mixed.names == ["beside.png", *found.names]
    assert not mixed.labelled


def test_the_severity_selects_its_part_of_a_published_file(tmp_path: Path) -> None:
    array = np.lib.format.open_memmap(tmp_path / "fog.npy", mode="w+", dtype=np.uint8, shape=(50_000, 1, 1, 3))
    array[20_000:30_000] = 7
    found = read_input_images(tmp_path / "fog.npy", None, 3)
    assert len(found.images) == 10_000
    assert found.images.pixels([0, 9_999]).tolist() == [[[[7, 7, 7]]]] * 2
    assert found.names[0] == "fog.npy#20000"
    assert not found.labelled


@pytest.mark.parametrize("count", [5, 4])
def test_labels_beside_an_array_count_if_there_is_one_per_image(count: int, tmp_path: Path) -> None:
    np.save(tmp_path / "fog.npy", np.zeros((5, 4, 4, 3), np.uint8))
    np.save(tmp_path / "labels.npy", np.arange(count, dtype=np.uint8))
    found = read_input_images(tmp_path / "fog.npy")
    assert found.labelled == (count == 5)
    assert found.images.labels.tolist() == (list(range(5)) if count == 5 else [0] * 5)


def test_what_has_no_images_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(
        ttc.TTCError, match=r"expected a folder of images or a \.npy file of CIFAR-C, but .* does not exist"
    ):
        read_input_images(tmp_path / "nowhere")
    (tmp_path / "nothing" / "here").mkdir(parents=True)
    (tmp_path / "nothing" / "notes.txt").write_text("")
    with pytest.raises(ttc.TTCError, match=r"nothing has no images \(.bmp, .*\), in it or in its folders"):
        read_input_images(tmp_path / "nothing")
    with pytest.raises(ttc.TTCError, match=r"notes.txt is another kind of file; the order is: ttc adapt MODEL IMAGES"):
        read_input_images(tmp_path / "nothing" / "notes.txt")
    write_images(tmp_path / "one", 1)
    with pytest.raises(ttc.TTCError, match=r"0.png is a single image: put it into a folder"):
        read_input_images(tmp_path / "one" / "0.png")
    np.save(tmp_path / "empty.npy", np.zeros((0, 4, 4, 3), np.uint8))
    with pytest.raises(ttc.TTCError, match=r"expected uint8 images of shape \(N, H, W, 3\), got uint8 \(0, 4, 4, 3\)"):
        read_input_images(tmp_path / "empty.npy")
    (tmp_path / "broken.npy").write_bytes(b"x")
    with pytest.raises(ttc.TTCError, match="cannot read"):
        read_input_images(tmp_path / "broken.npy")
