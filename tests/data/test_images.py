import hashlib

import numpy as np
import pytest
import torch

from ttc.data import ArrayImages, as_tensor, subset
from ttc.errors import TTCError


def images(count: int = 6) -> ArrayImages:
    pixels = np.random.default_rng(0).integers(0, 256, (count, 4, 4, 3), dtype=np.uint8)
    return ArrayImages("six", pixels, np.arange(count) % 3, 3)


def test_pixels_are_in_the_requested_order() -> None:
    data = images()
    assert np.array_equal(data.pixels([4, 0, 4]), data.array[[4, 0, 4]])
    assert data.pixels([]).shape == (0, 4, 4, 3)


@pytest.mark.parametrize("indices", [[6], [-1], [0, 1_000_000]])
def test_indices_outside_are_rejected(indices: list[int]) -> None:
    with pytest.raises(IndexError, match="six has 6 images"):
        images().pixels(indices)


def test_checksum_covers_pixels_and_labels() -> None:
    data = images(3000)  # more than one piece
    assert data.checksum == hashlib.sha256(data.labels.tobytes() + data.array.tobytes()).hexdigest()
    changed = ArrayImages("six", data.array, (data.labels + 1) % 3, 3)
    assert changed.checksum != data.checksum


@pytest.mark.parametrize(("label", "shown"), [(-1, "-1"), (3, "3"), (255, "255")])
def test_labels_out_of_range_are_rejected(label: int, shown: str) -> None:
    with pytest.raises(TTCError, match=rf"labels must lie in 0 … 2, found {shown}; .* ttc data verify"):
        ArrayImages("bad", np.zeros((2, 4, 4, 3), np.uint8), np.array([0, label]), 3)


def test_wrong_shapes_are_rejected() -> None:
    with pytest.raises(TTCError, match=r"expected uint8 images of shape \(N, H, W, 3\), got float64 \(2, 4, 4, 3\)"):
        ArrayImages("bad", np.zeros((2, 4, 4, 3)), np.zeros(2, np.int64), 3)  # type: ignore[arg-type]
    with pytest.raises(TTCError, match=r"2 images but labels of shape \(3,\)"):
        ArrayImages("bad", np.zeros((2, 4, 4, 3), np.uint8), np.zeros(3, np.int64), 3)


def test_a_subset_keeps_indices_and_rejects_impossible_counts() -> None:
    data = images()
    part = subset(data, 4)
    assert (len(part), part.name, part.num_classes) == (4, "six[:4]", 3)
    assert np.array_equal(part.labels, data.labels[:4])
    assert np.array_equal(part.pixels([3]), data.pixels([3]))
    assert part.checksum not in {data.checksum, subset(data, 3).checksum}
    assert subset(data, 6) is data
    with pytest.raises(IndexError, match="has 4 images"):
        part.pixels([4])
    for count in (0, -5, 7, 10**9):
        with pytest.raises(TTCError, match=r"six has 6 images, .* requested: choose 1 to 6"):
            subset(data, count)


def test_a_subset_of_sorted_images_has_every_class() -> None:
    data = ArrayImages("sorted", np.arange(12 * 3, dtype=np.uint8).reshape(12, 1, 1, 3), np.arange(12) // 4, 3)
    part = subset(data, 6, by_class=True)
    assert (part.name, part.labels.tolist()) == ("sorted[6 spread]", [0, 0, 1, 1, 2, 2])
    np.testing.assert_array_equal(part.pixels([1, 5]), data.pixels([2, 10]))
    assert part.checksum not in {data.checksum, subset(data, 6).checksum}


def test_as_tensor_is_unit_scaled_and_channels_last() -> None:
    pixels = images().array
    x = as_tensor(pixels)
    assert x.dtype == torch.float32
    assert x.is_contiguous(memory_format=torch.channels_last)
    np.testing.assert_array_equal(x.numpy(), np.moveaxis(pixels.astype(np.float32) / 255, 3, 1))


def test_as_tensor_does_not_share_memory() -> None:
    pixels = np.full((1, 2, 2, 3), 255, np.uint8)
    pixels.flags.writeable = False  # as memory-mapped data is
    as_tensor(pixels).zero_()
    assert pixels.min() == 255
