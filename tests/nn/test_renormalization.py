"""Batch renormalization: values of the running statistics, gradients of the batch's."""

import pytest
import torch
from torch import nn

import ttc
from ttc.nn import BatchRenorm


def test_values_are_those_of_the_running_statistics() -> None:
    layer = BatchRenorm(nn.BatchNorm2d(2), decay=0.8)
    torch.manual_seed(0)
    first, second = torch.randn(6, 2, 3, 3) * 2 + 1, torch.randn(6, 2, 3, 3)
    layer(first)
    mean, std = first.mean((0, 2, 3)), (first.var((0, 2, 3), correction=0) + 1e-5).sqrt()
    expected = (second - mean.view(1, 2, 1, 1)) / std.view(1, 2, 1, 1)
    torch.testing.assert_close(layer(second), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(layer.running_mean, 0.8 * mean + 0.2 * second.mean((0, 2, 3)))


def test_gradients_are_those_through_the_batch() -> None:
    layer, plain = BatchRenorm(nn.BatchNorm2d(2)), nn.BatchNorm2d(2)
    torch.manual_seed(0)
    images = torch.randn(6, 2, 3, 3) * 3 + 1
    layer(torch.randn(6, 2, 3, 3))
    x, y, direction = images.clone().requires_grad_(), images.clone().requires_grad_(), torch.randn_like(images)
    (layer(x) * direction).sum().backward()
    (plain(y) * direction).sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    scale = (images.var((0, 2, 3), correction=0) + 1e-5).sqrt()
    old_std = (layer.running_std - 0.05 * scale) / 0.95
    torch.testing.assert_close(x.grad, y.grad * (scale / old_std).view(1, 2, 1, 1), rtol=1e-4, atol=1e-5)


def test_a_single_value_per_channel_uses_the_source_statistics() -> None:
    source = nn.BatchNorm1d(3)
    source.running_mean = torch.tensor([0.5, 0.0, -1.0])
    layer = BatchRenorm(source)
    x = torch.ones(1, 3)
    with pytest.warns(UserWarning, match="one value per channel"):
        found = layer(x)
    torch.testing.assert_close(found, source.eval()(x).detach())
    assert int(layer.batches) == 0


def test_frozen_statistics_stay() -> None:
    layer = BatchRenorm(nn.BatchNorm2d(2))
    layer.tracking = False
    layer(torch.randn(4, 2, 3, 3))
    assert int(layer.batches) == 0
    assert torch.equal(layer.running_std, torch.ones(2))


def test_a_decay_outside_its_range_is_rejected() -> None:
    with pytest.raises(ttc.TTCError, match=r"lies in \[0, 1\], got -1"):
        BatchRenorm(nn.BatchNorm2d(2), decay=-1)
