"""An image's result depends only on (seed, corruption, severity, index)."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ttc.corruptions import CORRUPTIONS, EXTRA_CORRUPTIONS, SEVERITIES, corrupt
from ttc.corruptions.random_streams import RandomStreams
from ttc.corruptions.severity_tables import TableName

MakeImages = Callable[[int, int, int], NDArray[np.uint8]]
ALL = (*CORRUPTIONS, *EXTRA_CORRUPTIONS)
RANDOM = (
    set(ALL)
    - {"defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression"}
    - {
        "gaussian_blur",
        "saturate",
    }
)


@pytest.mark.parametrize("corruption", ALL)
@pytest.mark.parametrize(("height", "width"), [(32, 32), (96, 96), (37, 51)])
def test_neighbours_do_not_matter(make_images: MakeImages, corruption: str, height: int, width: int) -> None:
    images = make_images(7, height, width)
    together = corrupt(images, corruption, 4, seed=3)
    assert together.shape == images.shape
    assert together.dtype == np.uint8
    apart = [corrupt(images[i : i + 1], corruption, 4, seed=3, indices=[i]) for i in range(7)]
    np.testing.assert_array_equal(np.concatenate(apart), together)
    order = [5, 0, 6, 2]
    np.testing.assert_array_equal(corrupt(images[order], corruption, 4, seed=3, indices=order), together[order])


@pytest.mark.parametrize("corruption", ALL)
def test_seed_severity_and_index_matter_and_nothing_else(make_images: MakeImages, corruption: str) -> None:
    images = make_images(2, 32, 32)
    images[1] = images[0]
    first = corrupt(images, corruption, 5, seed=0)
    np.testing.assert_array_equal(first, corrupt(images, corruption, 5, seed=0))
    other_seed = corrupt(images, corruption, 5, seed=1)
    assert (first[0] != first[1]).any() == (corruption in RANDOM)
    assert (first != other_seed).any() == (corruption in RANDOM)
    assert (first != corrupt(images, corruption, 1)).any()


@pytest.mark.parametrize("corruption", ALL)
def test_threads_do_not_matter(make_images: MakeImages, corruption: str) -> None:
    images = make_images(3, 224, 224)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = corrupt(images, corruption, 5)
        torch.set_num_threads(3)
        np.testing.assert_array_equal(corrupt(images, corruption, 5), one)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("table", ["cifar", "imagenet"])
@pytest.mark.parametrize("corruption", ALL)
def test_every_severity_gives_images(make_images: MakeImages, corruption: str, table: TableName) -> None:
    images = torch.from_numpy(make_images(2, 32, 32))
    kept = images.clone()
    for severity in SEVERITIES:
        result = corrupt(images, corruption, severity, table=table)
        assert result.shape == images.shape
        assert result.dtype == torch.uint8
        assert result.is_contiguous()
    assert torch.equal(corrupt(images, corruption, 0), images)
    assert torch.equal(images, kept)


@pytest.mark.parametrize("corruption", ALL)
def test_strided_and_empty_batches(make_images: MakeImages, corruption: str) -> None:
    images = make_images(4, 32, 32)
    flipped = corrupt(images[::2, :, ::-1], corruption, 3)
    np.testing.assert_array_equal(flipped, corrupt(np.ascontiguousarray(images[::2, :, ::-1]), corruption, 3))
    assert corrupt(images[:0], corruption, 3).shape == (0, 32, 32, 3)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**64 - 1),
    indices=st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=6, unique=True),
    draws=st.integers(1, 3),
)
def test_streams_are_addressed_by_index(seed: int, indices: list[int], draws: int) -> None:
    cpu = torch.device("cpu")
    together = RandomStreams(seed, "test", indices, cpu)
    alone = RandomStreams(seed, "test", indices[-1:], cpu)
    seen = []
    for _ in range(draws):
        batch = together.uniform(5)
        assert torch.equal(batch[-1:], alone.uniform(5))
        seen.append(batch)
    numbers = torch.cat(seen).flatten()
    assert len(numbers.unique()) == len(numbers)  # no two images and no two draws share numbers
    assert torch.equal(together.normal(4)[-1:], alone.normal(4))


def test_streams_pass_for_independent_uniform_numbers() -> None:
    numbers = RandomStreams(5, "test", range(400), torch.device("cpu")).uniform(400)
    assert numbers.mean().item() == pytest.approx(0.5, abs=0.004)
    correlation = torch.corrcoef(numbers)[~torch.eye(400, dtype=torch.bool)]
    assert correlation.std().item() == pytest.approx(1 / 400**0.5, rel=0.05)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("corruption", ALL)
def test_a_graphics_card_agrees(make_images: MakeImages, corruption: str) -> None:
    images = torch.from_numpy(make_images(3, 96, 96))
    here, there = corrupt(images, corruption, 5), corrupt(images.cuda(), corruption, 5)
    assert there.is_cuda
    assert (here.int() - there.cpu().int()).abs().max() <= 1
