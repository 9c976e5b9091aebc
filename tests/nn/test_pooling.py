"""Pooled statistics: the weight of a batch, that they do not depend on its size, and that a new domain is noticed."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ttc import TTCError
from ttc.core.statistics import repeat_batch
from ttc.nn import PooledNorm, pooling, pools_have_changed, restart_pools_, set_pool_tolerance_


def source_layer() -> nn.BatchNorm2d:
    layer = nn.BatchNorm2d(3).eval().requires_grad_(False)
    layer.weight.copy_(torch.tensor([1.0, 2.0, 0.5]))
    layer.bias.copy_(torch.tensor([0.0, -1.0, 1.0]))
    return layer


def images(count: int, *, mean: float = 0.0, std: float = 1.0, seed: int = 0) -> Tensor:
    """Images whose own means differ, as those of photographs do."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(count, 3, 6, 6, generator=generator) + 0.5 * torch.randn(count, 3, 1, 1, generator=generator)
    return mean + std * noise


def test_the_first_batch_is_mixed_with_the_source() -> None:
    layer, x = PooledNorm(source_layer(), source_count=16), images(8, mean=0.3)
    found = layer(x)
    weight, mean = 8 / 24, x.mean((0, 2, 3))
    variance = (1 - weight) + weight * x.var((0, 2, 3), correction=0) + weight * (1 - weight) * mean.square()
    expected = torch.batch_norm(x, layer.weight, layer.bias, weight * mean, variance, False, 0.0, layer.eps, False)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(layer.mean, weight * mean)
    assert float(layer.images) == 24


@pytest.mark.parametrize("size", [1, 7, 60])
def test_the_pool_does_not_depend_on_the_size_of_batches(size: int) -> None:
    whole, parts, x = PooledNorm(source_layer()), PooledNorm(source_layer()), images(60, mean=0.5)
    whole(x)
    for batch in x.split(size):
        parts(batch)
    torch.testing.assert_close(parts.mean, whole.mean)
    torch.testing.assert_close(parts.variance, whole.variance)


def test_another_view_is_normalized_as_its_batch_was_and_leaves_no_trace() -> None:
    layer, x = PooledNorm(source_layer()), images(12)
    expected, stored = layer(x), copy.deepcopy(layer.state_dict())
    with repeat_batch(layer):
        torch.testing.assert_close(layer(x[3:5]), expected[3:5], rtol=0, atol=0)
    torch.testing.assert_close(layer.state_dict(), stored, rtol=0, atol=0)


def test_a_stable_stream_keeps_its_pool_and_the_window_bounds_it() -> None:
    network = nn.Sequential(PooledNorm(source_layer(), window=100))
    for seed in range(20):
        network(images(10, mean=0.3, seed=seed))
        assert not pools_have_changed(network)
    layer = network[0]
    assert isinstance(layer, PooledNorm)
    assert float(layer.images) == 100
    assert float(layer.distance) < 4


@pytest.mark.parametrize("size", [1, 10, 100])
def test_a_new_domain_is_noticed_and_restarts_the_pool(size: int) -> None:
    network = nn.Sequential(PooledNorm(source_layer()))
    for batch in images(300).split(size):
        network(batch)
        assert not pools_have_changed(network)
    restarts = 0
    for batch in images(100, mean=2.0, seed=1).split(size):
        network(batch)
        if pools_have_changed(network):
            restart_pools_(network)
            network(batch)
            restarts += 1
    assert restarts
    layer = network[0]
    assert isinstance(layer, PooledNorm)
    assert layer.mean.min() > 1.2


def test_a_higher_tolerance_keeps_the_pool() -> None:
    network = nn.Sequential(PooledNorm(source_layer()))
    network(images(300))
    set_pool_tolerance_(network, 1e6)
    network(images(100, mean=2.0, seed=1))
    assert not pools_have_changed(network)


def test_a_model_without_pools_has_nothing_to_restart() -> None:
    assert not pools_have_changed(nn.Sequential(source_layer()))


def test_values_are_those_of_the_pool_and_gradients_those_of_the_batch() -> None:
    plain, layer, x = PooledNorm(source_layer()), PooledNorm(source_layer().requires_grad_(True)), images(4)
    weight, bias, varied = layer.weight, layer.bias, x.clone().requires_grad_(True)
    assert weight is not None
    assert bias is not None
    found = layer(varied)
    assert torch.equal(found, plain(x))
    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    to_x, to_weight, to_bias = torch.autograd.grad((found * direction).sum(), [varied, weight, bias])
    alone = x.clone().requires_grad_(True)  # (x - mean) / std of the batch, scaled as the pool scales
    scale = weight * ((x.var((0, 2, 3), correction=0) + layer.eps) / (layer.variance + layer.eps)).sqrt()
    of_batch = F.batch_norm(alone, None, None, scale.detach(), None, True, 0.0, layer.eps)
    (expected,) = torch.autograd.grad((of_batch * direction).sum(), alone)
    torch.testing.assert_close(to_x, expected)
    normalized = (found - bias.view(1, 3, 1, 1)) / weight.view(1, 3, 1, 1)
    torch.testing.assert_close(to_weight, (normalized * direction).sum((0, 2, 3)).detach())
    torch.testing.assert_close(to_bias, direction.sum((0, 2, 3)))


@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_statistics_are_precise_far_from_zero(offset: float) -> None:
    source = source_layer()
    assert source.running_mean is not None
    source.running_mean.fill_(offset)
    layer, x = PooledNorm(source, source_count=1e-6), images(50).double() + offset
    layer(x.float())
    torch.testing.assert_close(layer.mean.double(), x.mean((0, 2, 3)), rtol=1e-6, atol=1e-4)
    torch.testing.assert_close(layer.variance.double(), x.var((0, 2, 3), correction=0), rtol=1e-3, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_normalized_in_float32_and_stored_as_it_came(dtype: torch.dtype) -> None:
    layer, wide, x = PooledNorm(source_layer()), PooledNorm(source_layer()), images(8, mean=0.3).to(dtype)
    half, full = x.clone().requires_grad_(), x.float().requires_grad_()
    saved: list[Tensor] = []

    def save(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        found = layer(half)
    expected = wide(full)
    assert found.dtype == dtype
    assert torch.equal(found, expected.to(dtype))
    assert torch.equal(layer.mean, wide.mean)
    assert {tensor.dtype for tensor in saved if tensor.numel() == x.numel()} == {dtype}
    torch.testing.assert_close(
        torch.autograd.grad(found.square().sum(), half)[0].float(),
        torch.autograd.grad(expected.to(dtype).float().square().sum(), full)[0],
        atol=2e-2,
        rtol=2e-2,
    )


def test_images_are_measured_alike_in_parts_and_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, parts, x = PooledNorm(source_layer()), PooledNorm(source_layer()), images(7, mean=0.5)
    whole(x)
    monkeypatch.setattr(pooling, "CACHED", 2 * x[0].numel())
    parts(x)
    assert torch.equal(parts.mean, whole.mean)
    assert torch.equal(parts.variance, whole.variance)


def test_without_tracking_a_batch_gets_the_same_values_and_leaves_no_trace() -> None:
    layer, x = PooledNorm(source_layer()), images(4)
    layer.tracking = False
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    found = layer(x)
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())
    layer.tracking = True
    assert torch.equal(layer(x), found)


def test_options_and_layers_that_make_no_pool_are_rejected() -> None:
    with pytest.raises(TTCError, match="pool counts"):
        PooledNorm(source_layer(), window=10)
    with pytest.raises(TTCError, match="no source statistics"):
        PooledNorm(nn.BatchNorm2d(3, track_running_stats=False))
