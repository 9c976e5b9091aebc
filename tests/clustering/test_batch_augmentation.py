"""The augmentation of a batch: its neutral settings, its draws and its affine map, written out."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import ttc
from ttc.clustering import BatchAugmentation
from ttc.clustering.batch_augmentation import from_pixels, gaussian_blur, to_pixels

IMAGES = torch.rand(4, 3, 8, 10, generator=torch.Generator().manual_seed(0))
ONE: dict[str, Any] = dict.fromkeys(("brightness", "contrast", "saturation", "gamma"), (1.0, 1.0))
STILL = BatchAugmentation(**ONE, hue=(0, 0), degrees=0, translate=0, scale=(1, 1), blur=None, noise=0)


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_neutral_settings_flip_at_most() -> None:
    found = {seed: STILL(IMAGES, draws(seed)) for seed in range(8)}
    flipped = [torch.allclose(images, IMAGES.flip(-1), atol=1e-5) for images in found.values()]
    assert 0 < sum(flipped) < 8
    for images, mirrored in zip(found.values(), flipped, strict=True):
        torch.testing.assert_close(images, IMAGES.flip(-1) if mirrored else IMAGES, rtol=1e-5, atol=1e-5)


def test_the_same_generator_gives_the_same_images() -> None:
    augment = BatchAugmentation()
    assert torch.equal(augment(IMAGES, draws(3)), augment(IMAGES, draws(3)))
    assert not torch.equal(augment(IMAGES, draws(3)), augment(IMAGES, draws(4)))
    found = augment(IMAGES * 3 - 1, draws())
    assert found.min() >= 0
    assert found.max() <= 1
    assert found.shape == IMAGES.shape


def test_one_draw_per_batch() -> None:
    same = IMAGES[:1].expand(4, 3, 8, 10)
    found = BatchAugmentation(noise=0)(same, draws())
    assert torch.equal(found, found[:1].expand_as(found))
    assert not torch.equal(*BatchAugmentation()(same, draws())[:2])


def test_the_affine_map_is_that_of_a_rotation_of_the_padded_image() -> None:
    """Rotation and scale alone, against the padded image mapped as a whole and then blurred and cropped."""
    augment = BatchAugmentation(**ONE, hue=(0, 0), degrees=15, translate=0, scale=(0.9, 0.9), noise=0, blur=(0.4, 0.4))
    generator = draws(1)
    torch.randperm(5, generator=generator), [torch.rand((), generator=generator) for _ in range(5)]
    angle = math.radians(-15 + 30 * float(torch.rand((), generator=generator)))
    [torch.rand((), generator=generator) for _ in range(4)]  # two translations, scale, blur
    flip = float(torch.rand((), generator=generator)) < 0.5
    height, width = 16, 20
    padded = F.pad(IMAGES, (5, 5, 4, 4), mode="replicate")
    rows = [
        [math.cos(angle), math.sin(angle) * height / width, 0],
        [-math.sin(angle) * width / height, math.cos(angle), 0],
    ]
    grid = F.affine_grid((torch.tensor(rows) / 0.9).expand(4, 2, 3), [4, 3, height, width], align_corners=False)
    mapped = F.grid_sample(padded, grid, align_corners=False)
    expected = gaussian_blur(mapped, 0.4)[:, :, 2:-2, 3:-3]
    found = augment(IMAGES, draws(1))
    torch.testing.assert_close(found, expected.flip(-1) if flip else expected, rtol=1e-4, atol=1e-5)


def test_translation_is_a_fraction_of_the_padded_size() -> None:
    images = torch.zeros(1, 1, 8, 8)
    images[..., 4, 4] = 1
    augment = BatchAugmentation(**ONE, hue=(0, 0), degrees=0, scale=(1, 1), blur=None, noise=0, translate=1 / 16)
    y, x = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
    for seed in range(20):
        found = augment(images, draws(seed))
        assert abs((found * y).sum() / found.sum() - 4) <= 1.001  # 1/16 of the padded 16 pixels
        assert min(abs((found * x).sum() / found.sum() - at) for at in (3, 4)) <= 1.001


def test_blur_is_the_gaussian_kernel() -> None:
    kernel = torch.tensor([math.exp(-(i**2) / (2 * 0.7**2)) for i in range(-2, 3)])
    kernel = kernel[:, None] * kernel / kernel.sum() ** 2
    expected = F.conv2d(IMAGES.reshape(12, 1, 8, 10), kernel[None, None]).view(4, 3, 4, 6)
    torch.testing.assert_close(gaussian_blur(IMAGES, 0.7), expected)
    sigmas = torch.tensor([0.7, 0.2, 1.5, 0.7])
    alone = [gaussian_blur(image[None], float(sigma)) for image, sigma in zip(IMAGES, sigmas, strict=True)]
    torch.testing.assert_close(gaussian_blur(IMAGES, sigmas), torch.cat(alone))


def test_standardized_images_are_augmented_in_pixels() -> None:
    normalize = ((0.4, 0.5, 0.6), (0.2, 0.25, 0.3))
    standard = from_pixels(IMAGES, normalize)
    torch.testing.assert_close(to_pixels(standard, normalize), IMAGES)
    found = BatchAugmentation(normalize=normalize)(standard, draws(2))
    torch.testing.assert_close(to_pixels(found, normalize), BatchAugmentation()(IMAGES, draws(2)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_precisions_keep_their_type(dtype: torch.dtype) -> None:
    found: Tensor = BatchAugmentation()(IMAGES.to(dtype), draws())
    assert found.dtype == dtype


def test_what_is_no_image_is_rejected() -> None:
    with pytest.raises(ttc.TTCError, match="augmentation of images takes"):
        BatchAugmentation()(torch.rand(4, 8), draws())
