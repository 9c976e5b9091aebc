"""Colour operations against Python's colorsys and their own neutral values."""

import colorsys

import pytest
import torch
from torch import Tensor

from ttc.clustering.colour_jitter import (
    adjust_brightness,
    adjust_contrast,
    adjust_gamma,
    adjust_hue,
    adjust_saturation,
)

IMAGES = torch.rand(3, 3, 4, 5, generator=torch.Generator().manual_seed(0))
OPERATIONS = [
    (adjust_brightness, 1.0),
    (adjust_contrast, 1.0),
    (adjust_saturation, 1.0),
    (adjust_hue, 0.0),
    (adjust_gamma, 1.0),
]


@pytest.mark.parametrize("shift", [-0.3, 0.06, 0.5, 1.0])
def test_hue_is_that_of_colorsys(shift: float) -> None:
    found = adjust_hue(IMAGES, shift).permute(0, 2, 3, 1).reshape(-1, 3)
    for before, after in zip(IMAGES.permute(0, 2, 3, 1).reshape(-1, 3).tolist(), found, strict=True):
        hue, saturation, value = colorsys.rgb_to_hsv(*before)
        expected = torch.tensor(colorsys.hsv_to_rgb((hue + shift) % 1, saturation, value))
        torch.testing.assert_close(after, expected, rtol=1e-4, atol=1e-5)


def test_hue_leaves_grey_alone() -> None:
    grey = torch.rand(2, 1, 4, 4).expand(2, 3, 4, 4)
    torch.testing.assert_close(adjust_hue(grey, 0.2), grey)


@pytest.mark.parametrize(("operation", "neutral"), OPERATIONS)
def test_the_neutral_value_changes_nothing(operation: object, neutral: float) -> None:
    assert callable(operation)
    torch.testing.assert_close(operation(IMAGES, neutral), IMAGES)


@pytest.mark.parametrize(("operation", "neutral"), OPERATIONS)
def test_one_factor_per_image_is_each_image_by_itself(operation: object, neutral: float) -> None:
    assert callable(operation)
    factors = neutral + torch.tensor([-0.2, 0.1, 0.3])
    alone = [operation(image[None], float(factor)) for image, factor in zip(IMAGES, factors, strict=True)]
    torch.testing.assert_close(operation(IMAGES, factors), torch.cat(alone), rtol=1e-4, atol=1e-5)


def test_images_of_one_channel_have_no_colour() -> None:
    images: Tensor = IMAGES[:, :1]
    assert torch.equal(adjust_saturation(images, 0.1), images)
    assert torch.equal(adjust_hue(images, 0.1), images)
    assert not torch.equal(adjust_contrast(images, 0.1), images)
