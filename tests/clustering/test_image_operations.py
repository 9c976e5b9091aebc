"""The image operations: neutral magnitudes, references of Pillow, and gradients to the magnitudes."""

import math

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch import Tensor

from ttc.clustering.image_operations import OPERATIONS, equalize, posterize, rotate, sharpen, translate_x

IMAGES = torch.randint(0, 256, (3, 3, 8, 8), generator=torch.Generator().manual_seed(0)) / 255
NEUTRAL = {"contrast": 1.0, "colour": 1.0, "brightness": 1.0, "sharpness": 1.0, "solarize": 1.1, "posterize": 8.0}
NO_MAGNITUDE = {"autocontrast", "invert", "equalize"}


def pillow(image: Tensor) -> Image.Image:
    return Image.fromarray((image * 255).round().byte().permute(1, 2, 0).numpy())


def tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255


def test_there_are_fourteen() -> None:
    assert len(OPERATIONS) == 14


@pytest.mark.parametrize("name", sorted(set(OPERATIONS) - NO_MAGNITUDE))
def test_a_neutral_magnitude_changes_nothing(name: str) -> None:
    found = OPERATIONS[name].apply(IMAGES, torch.full((3,), NEUTRAL.get(name, 0.0)))
    torch.testing.assert_close(found, IMAGES, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_each_image_has_its_own_magnitude(name: str) -> None:
    operation = OPERATIONS[name]
    magnitudes = torch.linspace(operation.low, operation.high, 5)[1:4]
    alone = [operation.apply(image[None], m[None]) for image, m in zip(IMAGES, magnitudes, strict=True)]
    torch.testing.assert_close(operation.apply(IMAGES, magnitudes), torch.cat(alone), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", sorted(set(OPERATIONS) - NO_MAGNITUDE))
def test_gradients_reach_the_magnitude(name: str) -> None:
    operation = OPERATIONS[name]
    magnitudes = torch.full((3,), operation.low + 0.3 * (operation.high - operation.low), requires_grad=True)
    weights = torch.rand(IMAGES.shape, generator=torch.Generator().manual_seed(1))
    (gradient,) = torch.autograd.grad((operation.apply(IMAGES, magnitudes) * weights).sum(), magnitudes)
    assert bool((gradient != 0).all())


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_gradients_reach_the_image(name: str) -> None:
    images = (IMAGES * 0.5 + 0.25).requires_grad_(True)
    magnitude = OPERATIONS[name].low + 0.3 * (OPERATIONS[name].high - OPERATIONS[name].low)
    weights = torch.rand(IMAGES.shape, generator=torch.Generator().manual_seed(1))
    (gradient,) = torch.autograd.grad(
        (OPERATIONS[name].apply(images, torch.full((3,), magnitude)) * weights).sum(), images
    )
    assert bool(gradient.any())
    assert gradient.isfinite().all()


@pytest.mark.parametrize(
    ("name", "magnitude", "reference"),
    [
        ("autocontrast", 0.0, ImageOps.autocontrast),
        ("invert", 0.0, ImageOps.invert),
        ("solarize", 128 / 255, lambda image: ImageOps.solarize(image, 128)),
        ("posterize", 5.2, lambda image: ImageOps.posterize(image, 5)),
    ],
)
def test_the_reference_of_pillow(name: str, magnitude: float, reference: object) -> None:
    assert callable(reference)
    images = (IMAGES * 200 + 20).round() / 255 if name == "autocontrast" else IMAGES
    found = OPERATIONS[name].apply(images, torch.full((3,), magnitude))
    for image, expected in zip(found, images, strict=True):
        torch.testing.assert_close(image, tensor(reference(pillow(expected))), rtol=0, atol=1.01 / 255)


def test_equalizing_spreads_the_values_by_rank() -> None:
    image = torch.tensor([10.0, 11, 12, 200]).view(1, 1, 2, 2) / 255
    torch.testing.assert_close(equalize(image, torch.zeros(1)).flatten(), torch.tensor([0, 1 / 3, 2 / 3, 1]))
    flat = torch.full((1, 1, 2, 2), 0.4)
    torch.testing.assert_close(equalize(flat, torch.zeros(1)), flat)


def test_posterizing_to_eight_bits_is_rounding() -> None:
    torch.testing.assert_close(posterize(IMAGES, torch.full((3,), 8.0)), IMAGES)


def test_a_quarter_turn_is_exact() -> None:
    found = rotate(IMAGES, torch.full((3,), math.pi / 2))
    assert any(torch.allclose(found, torch.rot90(IMAGES, k, (2, 3)), atol=1e-4) for k in (1, 3))


def test_translation_is_a_fraction_of_half_the_width() -> None:
    found = translate_x(IMAGES, torch.full((3,), 0.25))  # one pixel of eight
    torch.testing.assert_close(found[..., :-1], IMAGES[..., 1:], rtol=1e-4, atol=1e-5)
    assert not found[..., -1].any()


def test_sharpening_leaves_a_flat_image_alone() -> None:
    flat = torch.full((1, 3, 4, 4), 0.3)
    torch.testing.assert_close(sharpen(flat, torch.tensor([1.9])), flat)
