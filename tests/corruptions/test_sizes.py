"""Other sizes: which table, how lengths scale, and what is refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from ttc.corruptions import CORRUPTIONS, EXTRA_CORRUPTIONS, TABLES, corrupt, nearest_table
from ttc.errors import TTCError

MakeImages = Callable[[int, int, int], NDArray[np.uint8]]
ALL = (*CORRUPTIONS, *EXTRA_CORRUPTIONS)


def test_both_tables_name_all_corruptions_in_order() -> None:
    assert len(CORRUPTIONS) == 15
    for table in TABLES.values():
        assert tuple(table.parameters) == ALL
        assert all(len(severities) == 5 for severities in table.parameters.values())


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


def test_elastic_displacement_scales() -> None:
    """On a ramp the change of grey is the displacement: a share of the side at both sizes."""
    deviations = []
    for side in (64, 128):
        ramp = np.broadcast_to(np.linspace(0, 255, side)[:, None], (12, side, side, 3)).astype(np.uint8)
        unlike = corrupt(ramp, "elastic_transform", 5, table="cifar").astype(float) - ramp
        middle = unlike[:, side // 4 : -side // 4, side // 4 : -side // 4, 0]
        smooth = middle.mean((1, 2), keepdims=True)  # the affine part, nearly
        deviations.append((middle - smooth).std())
    assert deviations[0] == pytest.approx(deviations[1], rel=0.2)


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
def test_other_images_are_refused(images: Any, kind: str) -> None:
    with pytest.raises(TTCError, match=rf"must be a uint8 array or tensor of shape \(N, H, W, 3\); got {kind}"):
        corrupt(images, "fog")


def test_bad_choices_are_named() -> None:
    images = np.zeros((2, 32, 32, 3), np.uint8)
    wrong: Any = "tiny"
    with pytest.raises(TTCError, match="no corruption 'rain'; choose one of gaussian_noise, "):
        corrupt(images, "rain")
    with pytest.raises(TTCError, match=r"severity must be 1, 2, 3, 4 or 5 .* got 6"):
        corrupt(images, "fog", 6)
    with pytest.raises(TTCError, match="no table 'tiny'; choose 'cifar', 'imagenet'"):
        corrupt(images, "fog", table=wrong)
    with pytest.raises(TTCError, match=r"seed must be between 0 and .* got -1"):
        corrupt(images, "fog", seed=-1)
    with pytest.raises(TTCError, match="for each of 2 images; got 1"):
        corrupt(images, "fog", indices=[0])
    with pytest.raises(TTCError, match="whole number from 0 up"):
        corrupt(images, "fog", indices=[0, -1])
    with pytest.raises(TTCError, match="at least 16x16 pixels; got 15x32: enlarge"):
        corrupt(images[:, :15], "fog")
