"""Reading the images of a job: full batches, no single image at the end, unreadable files skipped."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ttc.core import Processes
from ttc.deploy import read_input_images
from ttc.deploy.job_reader import JobReader, order_images
from ttc.errors import TTCError


def reader(folder: Path, count: int, batch_size: int, damaged: tuple[int, ...] = ()) -> JobReader:
    """A reader of grey images, each of which has its number as the value of its pixels."""
    for i in range(count):
        Image.fromarray(np.full((4, 4, 3), i, np.uint8)).save(folder / f"{i:02}.png")
    for i in damaged:
        (folder / f"{i:02}.png").write_bytes(b"")
    return JobReader(read_input_images(folder), np.arange(count), batch_size)


@pytest.mark.parametrize(
    ("count", "damaged", "batches", "ends"),
    [
        (8, (), [[0, 1, 2], [3, 4, 5], [6, 7]], [3, 6, 8]),
        (7, (), [[0, 1, 2], [3, 4, 5, 6]], [3, 7]),  # never a single image of several
        (1, (), [[0]], [1]),
        (8, (1, 2), [[0, 3, 4], [5, 6, 7]], [5, 8]),
    ],
)
def test_batches_are_full(
    count: int, damaged: tuple[int, ...], batches: list[list[int]], ends: list[int], tmp_path: Path
) -> None:
    skipped: dict[str, str] = {}
    found = list(reader(tmp_path, count, 3, damaged).read_batches(0, skipped, Processes()))
    assert [batch.index for batch in found] == batches
    assert [batch.end for batch in found] == ends
    assert [int(pixels[0, 0, 0]) for batch in found for pixels in batch.pixels] == [i for one in batches for i in one]
    assert sorted(skipped) == [f"{i:02}.png" for i in damaged]


def test_it_resumes_at_a_position_of_the_order(tmp_path: Path) -> None:
    (batch,) = reader(tmp_path, 5, 3).read_batches(3, {}, Processes())
    assert (batch.index, batch.end) == ([3, 4], 5)


def test_images_of_two_sizes_are_rejected_with_their_names(tmp_path: Path) -> None:
    images = reader(tmp_path, 4, 4)
    Image.new("RGB", (6, 5)).save(tmp_path / "02.png")
    sentence = r"differ in size \(00.png: 4 x 4 pixels, 02.png: 6 x 5\) .* give it with --size"
    with pytest.raises(TTCError, match=sentence):
        list(images.read_batches(0, {}, Processes()))


def test_the_last_images_come_last_first(tmp_path: Path) -> None:
    images = reader(tmp_path, 5, 3, damaged=(3,))
    assert [round(255 * float(image.mean())) for image in images.read_last(3)] == [4, 2, 1]


def test_nothing_that_can_be_read(tmp_path: Path) -> None:
    images = reader(tmp_path, 3, 3, damaged=(0, 1, 2))
    with pytest.raises(TTCError, match="none of the 3 images can be read; the first: "):
        list(images.read_batches(0, {}, Processes()))
    with pytest.raises(TTCError, match="none of the 3 images can be read"):
        images.read_last(2)


def test_an_order_is_one_of_its_seed() -> None:
    first, again, other = (order_images(50, shuffle=True, seed=seed).tolist() for seed in (0, 0, 1))
    assert first == again
    assert first != other
    assert sorted(first) == list(range(50))
