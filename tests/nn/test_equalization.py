"""Equalization: its formula, its limits, what it leaves alone, and that mixed domains ask for more of it."""

import copy

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.core.statistics import repeat_batch
from ttc.corruptions import corrupt
from ttc.data import as_tensor
from ttc.nn import Equalization, PooledNorm, pooled_layers


def images(count: int) -> Tensor:
    """Images whose own means and deviations differ."""
    generator = torch.Generator().manual_seed(0)
    mean, std = torch.randn(2, count, 3, 1, 1, generator=generator).unbind()
    pixels: Tensor = mean + std.exp() * torch.randn(count, 3, 6, 6, generator=generator)
    return pixels


def layer_with(amount: float) -> PooledNorm:
    layer = PooledNorm(nn.BatchNorm2d(3).eval())
    layer.equalization = Equalization()
    nn.init.constant_(layer.equalization.amount, amount)
    return layer


def test_without_an_amount_images_stay() -> None:
    x = images(8)
    torch.testing.assert_close(layer_with(0.0)(x), PooledNorm(nn.BatchNorm2d(3).eval())(x))


@pytest.mark.parametrize("amount", [0.2, 1.0])
def test_each_image_is_normalized_by_the_mixture_of_its_statistics_and_the_source(amount: float) -> None:
    x, weight, layer = images(8), amount / 2, layer_with(amount)
    equalized = []
    for image in x:  # the source has mean 0 and variance 1
        mean, variance = image.mean((1, 2)), image.var((1, 2), correction=0)
        mixed = (1 - weight) + weight * variance + weight * (1 - weight) * mean.square() + layer.eps
        equalized.append((image - weight * mean[:, None, None]) * ((1 + layer.eps) / mixed).sqrt()[:, None, None])
    plain = PooledNorm(nn.BatchNorm2d(3).eval())
    torch.testing.assert_close(layer(x), plain(torch.stack(equalized)))
    torch.testing.assert_close(layer.mean, plain.mean)
    torch.testing.assert_close(layer.variance, plain.variance)


def test_another_view_is_equalized_as_its_batch_was() -> None:
    layer, x = layer_with(0.5), images(12)
    expected, stored = layer(x), copy.deepcopy(layer.state_dict())
    with repeat_batch(layer):
        torch.testing.assert_close(layer(x[3:5]), expected[3:5])
    torch.testing.assert_close(layer.state_dict(), stored, rtol=0, atol=0)


def test_vectors_are_left_alone() -> None:
    layer, plain, x = (*(PooledNorm(nn.BatchNorm1d(3).eval()) for _ in range(2)), images(8)[:, :, 0, 0])
    layer.equalization = Equalization()
    torch.testing.assert_close(layer(x), plain(x), rtol=0, atol=0)


def test_the_amount_is_brought_into_its_limits() -> None:
    step = Equalization()
    for value, limit in [(3.0, 1.0), (-3.0, 0.0)]:
        step.amount.data.fill_(value)
        step.limit_()
        assert step.amount.item() == limit


def test_mixed_domains_ask_for_more_than_one_domain() -> None:
    pixels = ttc.data.embedded().pixels(range(600))
    noisy, blurred = (
        as_tensor(corrupt(pixels, name, severity=5, seed=0)) for name in ("gaussian_noise", "defocus_blur")
    )
    take_noisy = torch.rand(600, generator=torch.Generator().manual_seed(0)) < 0.5
    mixed = torch.where(take_noisy[:, None, None, None], noisy, blurred)
    amounts = []
    for stream in (mixed, blurred):
        adapter = ttc.adapt(ttc.models.embedded(), "steady")
        for batch in stream.split(100):
            adapter(batch)
        steps = [layer.equalization for layer in pooled_layers(adapter.model)]
        amounts.append(sum(step.amount.item() for step in steps if step is not None))
    assert amounts[0] > amounts[1] + 0.1
