"""The named statistics against their formulas, written out."""

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.nn.normalization import BatchStatisticsNorm, BlendNorm, SourceNorm
from ttc.nn.stream_statistics import EmaNorm, RobustNorm, RunningNorm, WindowNorm, track_statistics

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


def moments(x: Tensor, correction: int) -> tuple[Tensor, Tensor]:
    return x.mean((0, 2, 3)), x.var((0, 2, 3), correction=correction)


def source(made: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    assert made.running_mean is not None
    assert made.running_var is not None
    return made.running_mean.clone(), made.running_var.clone()


def test_batch_uses_the_biased_variance_and_stores_nothing() -> None:
    made = layer()
    norm = BatchStatisticsNorm(made)
    torch.testing.assert_close(norm(X), by_hand(made, X, *moments(X, 0)))
    torch.testing.assert_close(norm(X[:2]), by_hand(made, X[:2], *moments(X[:2], 0)))


def test_batch_equals_torch_in_training_mode() -> None:
    made = layer()
    assert torch.equal(BatchStatisticsNorm(made)(X), copy.deepcopy(made).train()(X))


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_blend_by_alpha(alpha: float) -> None:
    made = layer()
    (mean, variance), (new_mean, new_variance) = source(made), moments(X, 1)
    expected = by_hand(made, X, (1 - alpha) * mean + alpha * new_mean, (1 - alpha) * variance + alpha * new_variance)
    torch.testing.assert_close(BlendNorm(made, alpha=alpha)(X), expected, rtol=1e-4, atol=1e-5)


def test_blend_by_pseudo_count_follows_the_batch_size() -> None:
    made = layer()
    norm = BlendNorm(made, source_pseudo_count=16)
    for size in (2, 6):
        expected = BlendNorm(made, alpha=size / (size + 16))(X[:size])
        torch.testing.assert_close(norm(X[:size]), expected)


@pytest.mark.parametrize(("size", "alpha"), [(2, 2 / 18), (6, 0.25)])
def test_blend_by_both_takes_the_smaller_weight(size: int, alpha: float) -> None:
    made = layer()
    norm = BlendNorm(made, alpha=0.25, source_pseudo_count=16)
    torch.testing.assert_close(norm(X[:size]), BlendNorm(made, alpha=alpha)(X[:size]))


def test_blend_at_its_ends_is_source_and_unbiased_batch() -> None:
    made = layer()
    torch.testing.assert_close(BlendNorm(made, source_pseudo_count=1e12)(X), made(X), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        BlendNorm(made, source_pseudo_count=0)(X), by_hand(made, X, *moments(X, 1)), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "alpha or source_pseudo_count, got neither"),
        ({"alpha": 1.5}, r"alpha is the weight of the batch and lies in \[0, 1\], got 1.5"),
        ({"source_pseudo_count": -1}, "source_pseudo_count counts images and is not negative, got -1"),
    ],
)
def test_blend_rejects_what_makes_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ttc.TTCError, match=message):
        BlendNorm(layer(), **options)


def test_running_statistics_track_on_its_branch_only() -> None:
    made = layer()
    mean, variance = source(made)
    norm = RunningNorm(made, momentum=0.1, branches=2)
    torch.testing.assert_close(norm(X), by_hand(made, X, mean, variance))
    with track_statistics(norm, branch=1):
        torch.testing.assert_close(norm(X), by_hand(made, X, *moments(X, 0)))
    torch.testing.assert_close(norm.mean[0], mean)
    torch.testing.assert_close(norm.mean[1], 0.9 * mean + 0.1 * moments(X, 1)[0])
    torch.testing.assert_close(norm.variance[1], 0.9 * variance + 0.1 * moments(X, 1)[1])
    assert (norm.tracking, norm.branch) == (False, 0)


def test_ema_counts_images_singly_and_uses_the_mixture_variance() -> None:
    made = layer()
    (mean, variance), (new_mean, new_variance), amount = source(made), moments(X, 0), 1 - 0.99 ** len(X)
    mixed = (1 - amount) * variance + amount * new_variance + amount * (1 - amount) * (mean - new_mean) ** 2
    norm = EmaNorm(made, weight=0.01)
    expected = by_hand(made, X, (1 - amount) * mean + amount * new_mean, mixed)
    torch.testing.assert_close(norm(X), expected, rtol=1e-4, atol=1e-5)
    norm.tracking = False
    torch.testing.assert_close(norm(X * 3), by_hand(made, X * 3, norm.mean, norm.variance), rtol=1e-4, atol=1e-5)  # type: ignore[arg-type]
    torch.testing.assert_close(source(made), (mean, variance))  # the layer it replaced is not changed


def test_window_is_a_mixture_with_the_source_until_it_is_full() -> None:
    made = layer()
    (mean, variance), (new_mean, new_variance), amount = source(made), moments(X, 0), len(X) / 10
    mixed = (1 - amount) * variance + amount * new_variance + amount * (1 - amount) * (mean - new_mean) ** 2
    expected = by_hand(made, X, (1 - amount) * mean + amount * new_mean, mixed)
    torch.testing.assert_close(WindowNorm(made, places=10)(X), expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(WindowNorm(made, places=6)(X), BatchStatisticsNorm(made)(X))


def test_source_uses_the_stored_statistics() -> None:
    made = layer()
    torch.testing.assert_close(SourceNorm(made)(X), by_hand(made, X, *source(made)))
    running = RunningNorm(made, branches=2)
    torch.testing.assert_close(SourceNorm(running)(X), made(X))


@pytest.mark.parametrize("make", [BatchStatisticsNorm, partial(BlendNorm, alpha=0.5), RunningNorm])
def test_one_value_per_channel_falls_back_to_the_stored_statistics(make: Any) -> None:
    made = nn.BatchNorm1d(4).eval()
    norm, x = make(made), torch.randn(1, 4)
    with track_statistics(norm), pytest.warns(UserWarning, match="one value per channel"):
        found = norm(x)
    torch.testing.assert_close(found, made(x))


def test_one_value_per_channel_without_source_statistics_is_rejected() -> None:
    norm = BatchStatisticsNorm(nn.BatchNorm1d(4, track_running_stats=False))
    with pytest.raises(ttc.TTCError, match="has no variance, and"):
        norm(torch.randn(1, 4))


@pytest.mark.parametrize("make", [partial(BlendNorm, alpha=0.5), RunningNorm, EmaNorm, SourceNorm])
def test_modes_that_start_from_the_source_need_its_statistics(make: Any) -> None:
    with pytest.raises(ttc.TTCError, match="stores no source statistics to start from"):
        make(nn.BatchNorm2d(4, track_running_stats=False))


def pooled(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))


@pytest.mark.parametrize(
    ("norm", "shape", "body"),
    [
        (nn.BatchNorm1d(4), (8, 3), nn.Linear(3, 4)),
        (nn.BatchNorm1d(4), (8, 3, 9), nn.Conv1d(3, 4, 3)),
        (nn.BatchNorm2d(4), (8, 3, 9, 9), nn.Conv2d(3, 4, 3)),
        (nn.BatchNorm3d(4), (8, 3, 5, 5, 5), nn.Conv3d(3, 4, 3)),
        (nn.SyncBatchNorm(4), (8, 3, 9, 9), nn.Conv2d(3, 4, 3)),
        (nn.GroupNorm(2, 4), (8, 3, 9, 9), nn.Conv2d(3, 4, 3)),
        (nn.InstanceNorm2d(4, affine=True), (8, 3, 9, 9), nn.Conv2d(3, 4, 3)),
        (nn.LayerNorm([4, 7, 7]), (8, 3, 9, 9), nn.Conv2d(3, 4, 3)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_kind_of_normalization_adapts(norm: nn.Module, shape: tuple[int, ...], body: nn.Module) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.norm, self.fc = body, norm, nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.norm(self.body(x))
            logits: Tensor = self.fc(y.flatten(2).relu().mean(2) if y.ndim > 2 else y.relu())
            return logits

    x = torch.randn(shape)
    adapter = ttc.adapt(Net(), "tent", head="fc")
    first = adapter(x)
    assert not torch.equal(first, adapter(x))
    trainable = {name for name, parameter in adapter.model.named_parameters() if parameter.requires_grad}
    assert trainable == {"network.norm.weight", "network.norm.bias"}


def test_views_of_images_need_images() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))
    with pytest.raises(ttc.TTCError, match=r"a view of images takes \(N, C, H, W\), got shape \(8, 3\)"):
        ttc.adapt(model, "ttc")(torch.rand(8, 3))


def test_robust_tracking_updates_the_statistics_it_normalizes_with() -> None:
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


def test_robust_without_tracking_is_the_source_layer() -> None:
    made = layer()
    norm = RobustNorm(made)
    assert torch.equal(norm(X), made(X))
    assert torch.equal(norm(X[:1]), made(X[:1]))


def test_robust_with_weight_zero_never_moves() -> None:
    made = layer()
    norm = RobustNorm(made, momentum=0.0)
    with track_statistics(norm):
        torch.testing.assert_close(norm(X), made(X))


@pytest.mark.parametrize("kind", ["ema", "running"])
def test_an_implausible_batch_counts_less(kind: str) -> None:
    made = nn.BatchNorm2d(4).eval()  # the source has mean 0 and variance 1, so the energy is the mean square
    signs = torch.tensor([1.0, -1.0]).repeat(12).view(6, 4, 1, 1).expand(6, 4, 3, 3)
    signs = torch.where(torch.arange(6).view(6, 1, 1, 1) % 2 == 0, signs, -signs)
    for size in (2.0, 3.0, 9.0):
        norm = EmaNorm(made, weight=0.01) if kind == "ema" else RunningNorm(made, momentum=0.1)
        with track_statistics(norm):
            norm(signs * size)
        assert norm.variance is not None
        amount, energy = (1 - 0.99**6 if kind == "ema" else 0.1), size**2
        if kind == "running":
            energy *= 54 / 53  # torch's running variance is the unbiased one
        weight = min(1.0, 6.0 / energy) ** 2
        wanted = torch.full((4,), 1 + amount * weight * (energy - 1))
        torch.testing.assert_close(norm.variance.view(-1), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bad", [1e3, 1e20, 1e38])
@pytest.mark.parametrize("kind", [EmaNorm, RunningNorm, partial(WindowNorm, places=2), partial(WindowNorm, places=9)])
def test_an_absurd_batch_is_rejected_and_nothing_is_stored(kind: Any, bad: float) -> None:
    norm = kind(layer())
    before = copy.deepcopy(dict(norm.named_buffers()))
    with track_statistics(norm), pytest.raises(ttc.TTCError, match="check the range of the images"):
        norm(X * bad)
    assert all(torch.equal(tensor, before[name]) for name, tensor in norm.named_buffers())


def test_the_reference_is_no_state_and_moves_with_the_layer() -> None:
    norm = EmaNorm(layer())
    assert set(norm.state_dict()) == {"weight", "bias", "mean", "variance", "alternatives"}
    assert norm.double().source_mean.dtype == torch.float64


def test_a_channel_that_was_constant_on_the_source_does_not_reject_batches() -> None:
    made = layer()
    assert made.running_var is not None
    made.running_var[0] = 0
    EmaNorm(made)(X)
