"""The strong view: drawn per image, with the probabilities it names."""

import torch

from ttc.clustering import strong_view
from ttc.clustering.batch_augmentation import from_pixels, to_pixels

IMAGES = torch.rand(400, 3, 6, 6, generator=torch.Generator().manual_seed(0))


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_same_generator_gives_the_same_images() -> None:
    found = strong_view(IMAGES, draws())
    assert torch.equal(found, strong_view(IMAGES, draws()))
    assert not torch.equal(found, strong_view(IMAGES, draws(1)))
    assert found.min() >= 0
    assert found.max() <= 1


def test_equal_images_become_different() -> None:
    found = strong_view(IMAGES[:1].expand_as(IMAGES), draws())
    assert len(found.flatten(1).unique(dim=0)) > 200


def test_a_fifth_is_grey() -> None:
    found = strong_view(IMAGES, draws())
    grey = (found.amax(1) - found.amin(1)).amax((1, 2)) < 1e-5
    assert 50 < int(grey.sum()) < 110  # 80 expected


def test_a_tenth_is_neither_jittered_nor_blurred() -> None:
    found = strong_view(IMAGES, draws())
    same = [
        any(torch.allclose(one, other, atol=1e-6) for other in (image, image.flip(-1)))
        for one, image in zip(found, IMAGES, strict=True)
    ]
    assert 15 < sum(same) < 55  # 400 · 0.2 · 0.8 · 0.5 = 32 expected


def test_standardized_images_are_augmented_in_pixels() -> None:
    normalize = ((0.4, 0.5, 0.6), (0.2, 0.25, 0.3))
    found = to_pixels(strong_view(from_pixels(IMAGES, normalize), draws(), normalize), normalize)
    torch.testing.assert_close(found, strong_view(IMAGES, draws()), rtol=1e-3, atol=1e-3)


def test_other_precisions_keep_their_type() -> None:
    assert strong_view(IMAGES.bfloat16(), draws()).dtype == torch.bfloat16
