"""The views of the augmentation study."""

import dataclasses

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.clustering import (
    GaussianNoise,
    PatchShuffle,
    RandomResizedCrop,
    RandomRotation,
    RandomView,
    horizontal_flip,
    random_flip,
    random_resized_crop,
    vertical_flip,
)


@pytest.mark.parametrize("view", [GaussianNoise(), RandomRotation(), RandomResizedCrop(), PatchShuffle()])
def test_random_views_draw_by_seed_and_step(view: RandomView) -> None:
    x = torch.rand(5, 3, 12, 10)
    view.step = 0
    first = view(x)
    assert first.shape == x.shape
    assert torch.equal(first, view(x))
    assert not torch.equal(first, dataclasses.replace(view, seed=1)(x))
    view.step = 1
    assert not torch.equal(first, view(x))
    alone = view(x[:2])  # the first images may be drawn otherwise in a smaller batch, but the shape holds
    assert alone.shape == (2, 3, 12, 10)


def test_a_full_turn_and_a_full_crop_change_nothing() -> None:
    x = torch.rand(4, 3, 9, 12)
    torch.testing.assert_close(RandomRotation(0.0)(x), x, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(RandomResizedCrop(scale=(1.0, 1.0), ratio=(1.0, 1.0))(x), x, rtol=1e-4, atol=1e-5)


def test_rotation_keeps_the_shape_of_things() -> None:
    """A quarter turn of a non-square image keeps pixel distances: the centre stays, a bar turns."""
    x = torch.zeros(1, 1, 21, 31)
    x[0, 0, 10, 10:21] = 1

    turned = RandomRotation(90.0, seed=0)
    angle = (torch.rand(1, generator=turned.draws()) * 2 - 1) * 90
    out = turned(x)[0, 0]
    rows, columns = torch.nonzero(out > 0.5, as_tuple=True)
    length = ((rows.max() - rows.min()).float() ** 2 + (columns.max() - columns.min()).float() ** 2).sqrt()
    assert 8.0 <= float(length) <= 11.5, (float(angle), float(length))
    assert out[10, 15] > 0.5


def test_flips_undo_themselves() -> None:
    x = torch.rand(2, 3, 5, 7)
    for flip in (horizontal_flip, vertical_flip):
        assert torch.equal(flip(flip(x)), x)
        assert not torch.equal(flip(x), x)


def test_noise_is_in_pixels() -> None:
    x = torch.zeros(4, 3, 64, 64)
    assert GaussianNoise(std=0.1)(x).std().item() == pytest.approx(0.1, rel=0.02)
    standardized = GaussianNoise(std=0.1, standardized=((0, 0, 0), (0.5, 0.25, 0.1)))(x)
    torch.testing.assert_close(standardized.std((0, 2, 3)), torch.tensor([0.2, 0.4, 1.0]), rtol=0.05, atol=0)


def test_random_views_replay_after_reset(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "ttc", view=GaussianNoise(std=0.3))
    first = [adapter(stream[0]) for _ in range(2)]
    assert not torch.equal(first[0], first[1])  # no step yet, but another draw
    adapter.reset()
    assert torch.equal(adapter(stream[0]), first[0])


def test_random_flips_are_drawn_per_image() -> None:
    images = torch.rand(64, 3, 4, 5)
    found = random_flip(images, torch.Generator().manual_seed(0))
    flipped = [torch.equal(one, image.flip(-1)) for one, image in zip(found, images, strict=True)]
    assert 20 < sum(flipped) < 44
    assert all(is_flipped or torch.equal(*pair) for is_flipped, *pair in zip(flipped, found, images, strict=True))


def test_a_crop_of_the_whole_image_is_the_image() -> None:
    images = torch.rand(4, 3, 6, 6)
    found = random_resized_crop(images, torch.Generator().manual_seed(0), scale=(1.0, 1.0), ratio=(1.0, 1.0))
    torch.testing.assert_close(found, images, rtol=1e-4, atol=1e-5)


def test_shuffled_patches_are_the_patches_of_their_own_image() -> None:
    x = torch.arange(2 * 3 * 8 * 12, dtype=torch.float32).view(2, 3, 8, 12)
    found = PatchShuffle(grid=4)(x)
    assert not torch.equal(found, x)

    def patches(image: Tensor) -> list[list[float]]:
        cut = [image[:, r : r + 2, c : c + 3] for r in range(0, 8, 2) for c in range(0, 12, 3)]
        return sorted(patch.flatten().tolist() for patch in cut)

    assert [patches(image) for image in found] == [patches(image) for image in x]
    assert torch.equal(PatchShuffle(grid=1)(x), x)


def test_sides_that_no_grid_fits_are_resized() -> None:
    x = torch.rand(2, 3, 10, 3)
    assert PatchShuffle(grid=4)(x).shape == x.shape
    torch.testing.assert_close(PatchShuffle(grid=4)(torch.ones(1, 1, 10, 3)), torch.ones(1, 1, 10, 3))
    with pytest.raises(ttc.TTCError, match="patches per side"):
        PatchShuffle(grid=0)
