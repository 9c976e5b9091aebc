"""AugMix: its operations one by one, its draws and its bounds."""

import math

import pytest
import torch
from torch import Tensor

from ttc.clustering import augmix
from ttc.clustering.augmix import GREY, OPERATIONS, apply_operations


def images(count: int = 3, side: int = 30) -> Tensor:
    values = torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(0)) * 0.8 + 0.1
    return (values * 255).round() / 255


def applied(name: str, x: Tensor, level: float = 1.0, sign: int = 1) -> Tensor:
    count = len(x)
    kind = torch.full((count,), OPERATIONS.index(name))
    return apply_operations(x, kind, torch.full((count,), level), torch.full((count,), sign))


def test_translations_move_by_whole_pixels() -> None:
    x = images()
    torch.testing.assert_close(applied("translate_x", x)[..., :-1], x[..., 1:])
    torch.testing.assert_close(applied("translate_y", x, sign=-1)[..., 1:, :], x[..., :-1, :])
    torch.testing.assert_close(applied("translate_x", x)[..., -1], torch.full_like(x[..., -1], GREY))
    torch.testing.assert_close(applied("translate_x", x, level=0.5), x)  # half a pixel is none


def test_a_rotation_turns_by_whole_degrees() -> None:
    side = 101
    x = torch.zeros(1, 1, side, side)
    x[0, 0, 50, 90] = 1.0  # 40 pixels from the centre
    turned = applied("rotate", x, level=1.0)[0, 0]
    row, column = divmod(int(turned.argmax()), side)
    assert abs(abs(row - 50) - 40 * math.sin(math.radians(3))) <= 1
    assert column == 90
    torch.testing.assert_close(applied("rotate", x, level=0.3), x)


def test_a_shear_moves_rows_in_proportion_to_their_height() -> None:
    x = torch.zeros(1, 1, 101, 101)
    x[0, 0, :, 50] = 1.0
    sheared = applied("shear_x", x)[0, 0]
    columns = torch.arange(101.0)[9:-9]
    centres = (sheared[:, 9:-9] * columns).sum(1) / sheared[:, 9:-9].sum(1)
    assert centres[50] == pytest.approx(50, abs=1e-3)
    assert abs(centres[100] - centres[0]) == pytest.approx(3, abs=1e-3)  # 0.03 · 100


def test_tones() -> None:
    x = images()
    values = (x * 255).round()
    assert torch.equal(applied("posterize", x) * 255, (values // 16) * 16)
    solarized = applied("solarize", x, level=1.0) * 255
    torch.testing.assert_close(solarized, torch.where(values >= 231, 255 - values, values))
    stretched = applied("autocontrast", x)
    torch.testing.assert_close(stretched.amin((2, 3)), torch.zeros(3, 3))
    torch.testing.assert_close(stretched.amax((2, 3)), torch.ones(3, 3))


def test_equalizing_makes_values_equally_frequent() -> None:
    dark = images(1, 64) ** 3
    found = applied("equalize", dark)[0, 0]
    assert found.median() == pytest.approx(0.5, abs=0.03)
    order = dark[0, 0].flatten().argsort()
    assert (found.flatten()[order].diff() >= -1e-6).all()


@pytest.mark.parametrize("name", ["autocontrast", "equalize"])
def test_flat_images_stay_as_they_are(name: str) -> None:
    flat = torch.full((1, 3, 30, 30), 100 / 255)
    torch.testing.assert_close(applied(name, flat), flat)


def test_none_of_the_operations_leaves_the_range() -> None:
    for name in OPERATIONS:
        found = applied(name, images())
        assert found.min() >= -1e-6
        assert found.max() <= 1 + 1e-6
    x = images()
    assert torch.equal(apply_operations(x, torch.full((3,), -1), torch.ones(3), torch.ones(3)), x)


@pytest.mark.parametrize("side", [8, 80])
def test_views_repeat_with_the_draws_and_differ_from_each_other(side: int) -> None:
    image = images(1, side)[0]
    first, again = (augmix(image, 5, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, again)
    assert first.shape == (5, 3, side, side)
    assert len({tuple(view.flatten().tolist()) for view in first}) == 5
    assert first.min() >= -1e-6
    assert first.max() <= 1 + 1e-6


def test_standardized_images_get_the_same_views() -> None:
    image, mean, std = images(1)[0], (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)
    shape = (3, 1, 1)
    standardized = (image - torch.tensor(mean).view(shape)) / torch.tensor(std).view(shape)
    found = augmix(standardized, 4, torch.Generator().manual_seed(0), (mean, std))
    expected = augmix(image, 4, torch.Generator().manual_seed(0))
    torch.testing.assert_close(found * torch.tensor(std).view(shape) + torch.tensor(mean).view(shape), expected)
