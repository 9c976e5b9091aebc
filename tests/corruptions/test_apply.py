"""``corrupt``: independence of the batch, image sizes, and invalid input."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from tests.corruptions.conftest import MakeImages
from ttc.corruptions import CORRUPTIONS, EXTRA_CORRUPTIONS, SEVERITIES, corrupt, nearest_table
from ttc.corruptions.severity_tables import TableName
from ttc.errors import TTCError

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


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("corruption", ALL)
def test_a_gpu_agrees(make_images: MakeImages, corruption: str) -> None:
    images = torch.from_numpy(make_images(3, 96, 96))
    here, there = corrupt(images, corruption, 5), corrupt(images.cuda(), corruption, 5)
    assert there.is_cuda
    assert (here.int() - there.cpu().int()).abs().max() <= 1


@pytest.mark.parametrize(
    ("height", "width", "table"),
    [(32, 32, "cifar"), (64, 64, "cifar"), (96, 96, "imagenet"), (224, 224, "imagenet"), (48, 300, "cifar")],
)
def test_the_nearer_table_is_used(make_images: MakeImages, height: int, width: int, table: Any) -> None:
    assert nearest_table(height, width) == table
    images = make_images(1, height, width)
    np.testing.assert_array_equal(corrupt(images, "motion_blur", 5), corrupt(images, "motion_blur", 5, table=table))


@pytest.mark.parametrize("corruption", ALL)
@pytest.mark.parametrize(("height", "width"), [(16, 16), (64, 64), (96, 96), (40, 130), (130, 99)])
def test_other_sizes_work(make_images: MakeImages, corruption: str, height: int, width: int) -> None:
    images = make_images(2, height, width)
    assert corrupt(images, corruption, 1).shape == images.shape
    assert (corrupt(images, corruption, 5) != images).any()


@pytest.mark.parametrize(
    ("corruption", "small", "large"),
    [("defocus_blur", 224, 448), ("motion_blur", 224, 448), ("gaussian_blur", 32, 64), ("zoom_blur", 32, 64)],
)
def test_lengths_scale_with_the_side(make_images: MakeImages, corruption: str, small: int, large: int) -> None:
    """Enlarging then corrupting shows the same as corrupting then enlarging."""
    image = make_images(1, small, small)

    def enlarged(one: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return np.asarray(Image.fromarray(one[0]).resize((large, large), Image.Resampling.BICUBIC))[None]

    first, second = (
        x.astype(float) for x in (corrupt(enlarged(image), corruption, 4), enlarged(corrupt(image, corruption, 4)))
    )
    untouched = np.abs(enlarged(image).astype(float) - second).mean()
    assert np.abs(first - second).mean() < 0.35 * untouched


def test_random_lengths_scale_too() -> None:
    """The width of a snow flake's streak and of fog's clouds grows with the image: their spectra keep their shape."""
    for corruption in ("snow", "fog"):
        spread = []
        for side in (112, 224):
            black = np.full((8, side, side, 3), 60, dtype=np.uint8)
            result = corrupt(black, corruption, 3, table="imagenet")[..., 0]
            centred = result - result.mean((1, 2), keepdims=True)
            lag = side // 28
            shifted = (centred[:, :, lag:] * centred[:, :, :-lag]).mean()
            spread.append(shifted / (centred**2).mean())
        assert spread[0] == pytest.approx(spread[1], abs=0.12), corruption


@pytest.mark.parametrize(
    ("images", "kind"),
    [
        (np.zeros((2, 32, 32), np.uint8), r"uint8 \(2, 32, 32\)"),
        (np.zeros((2, 32, 32, 4), np.uint8), r"uint8 \(2, 32, 32, 4\)"),
        (np.zeros((2, 32, 32, 3), np.uint16), r"uint16 \(2, 32, 32, 3\)"),
        (torch.zeros(2, 32, 32, 3), r"torch.float32 \(2, 32, 32, 3\)"),
        (torch.zeros(2, 3, 32, 32, dtype=torch.uint8), r"torch.uint8 \(2, 3, 32, 32\)"),
        ([[1, 2], [3, 4]], "list"),
    ],
)
def test_other_images_are_rejected(images: Any, kind: str) -> None:
    with pytest.raises(TTCError, match=rf"must be a uint8 array or tensor of shape \(N, H, W, 3\); got {kind}"):
        corrupt(images, "fog")


def test_bad_choices_are_named() -> None:
    images = np.zeros((2, 32, 32, 3), np.uint8)
    wrong: Any = "tiny"
    with pytest.raises(TTCError, match=r"unknown corruption 'rain'.*; choose from: gaussian_noise, "):
        corrupt(images, "rain")
    with pytest.raises(TTCError, match=r"severity must be 1, 2, 3, 4 or 5 .* got 6"):
        corrupt(images, "fog", 6)
    with pytest.raises(TTCError, match="unknown severity table 'tiny'; choose from: cifar, imagenet"):
        corrupt(images, "fog", table=wrong)
    with pytest.raises(TTCError, match=r"seed must be between 0 and .* got -1"):
        corrupt(images, "fog", seed=-1)
    with pytest.raises(TTCError, match="one per image; got 1 indices for 2 images"):
        corrupt(images, "fog", indices=[0])
    with pytest.raises(TTCError, match="indices must be non-negative integers"):
        corrupt(images, "fog", indices=[0, -1])
    with pytest.raises(TTCError, match="at least 16x16 pixels; got 15x32: enlarge"):
        corrupt(images[:, :15], "fog")
