"""Robust batch normalization (RobustNorm of nn/normalization.py) against its formula, written out."""

import copy

import torch
from torch import Tensor, nn

from ttc.nn import RobustNorm, track_statistics

X = torch.randn(6, 4, 3, 3, generator=torch.Generator().manual_seed(0)) * 2 + 1


def layer() -> nn.BatchNorm2d:
    torch.manual_seed(1)
    made = nn.BatchNorm2d(4).eval()
    for tensor in (made.weight, made.bias, made.running_mean, made.running_var):
        assert tensor is not None
        nn.init.uniform_(tensor, 0.5, 1.5)
    return made


def by_hand(made: nn.BatchNorm2d, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    normal = (x - mean.view(1, -1, 1, 1)) / (variance.view(1, -1, 1, 1) + made.eps).sqrt()
    return normal * made.weight.view(1, -1, 1, 1) + made.bias.view(1, -1, 1, 1)


def test_a_tracked_batch_updates_the_statistics_it_is_normalized_with() -> None:
    made = layer()
    norm = RobustNorm(copy.deepcopy(made), momentum=0.3)
    mean, variance = made.running_mean, made.running_var
    assert mean is not None
    assert variance is not None
    x = X.clone().requires_grad_(True)
    other = X.clone().requires_grad_(True)
    for _ in range(2):
        with track_statistics(norm):
            found = norm(x)
        mean = 0.7 * mean.detach() + 0.3 * other.mean((0, 2, 3))
        variance = 0.7 * variance.detach() + 0.3 * other.var((0, 2, 3), correction=0)
        expected = by_hand(made, other, mean, variance)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    (one,) = torch.autograd.grad(found.square().sum(), x)
    (two,) = torch.autograd.grad(expected.square().sum(), other)
    torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)  # gradients flow through the part of the batch
    with torch.no_grad():
        torch.testing.assert_close(norm(X), by_hand(made, X, mean, variance), rtol=1e-4, atol=1e-5)


def test_without_tracking_it_is_the_source_layer() -> None:
    made = layer()
    norm = RobustNorm(made)
    assert torch.equal(norm(X), made(X))
    assert torch.equal(norm(X[:1]), made(X[:1]))


def test_weight_zero_never_moves() -> None:
    made = layer()
    norm = RobustNorm(made, momentum=0.0)
    with track_statistics(norm):
        torch.testing.assert_close(norm(X), made(X))
