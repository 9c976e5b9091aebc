"""Small batches: the average over the stream, samples counted one by one, and what that brings."""

import copy
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ttc
from tests.methods.test_contract import OPTIONS
from ttc.clustering import Assignment, BelowMeanEntropy, ClusteringAdapter, Updater
from ttc.core import SmallBatches
from ttc.nn.normalization import BatchStatisticsNorm
from ttc.nn.stream_statistics import EmaNorm

Images = Callable[[int, float, int], tuple[Tensor, Tensor]]


def shifted(labelled: Images, count: int, seed: int) -> tuple[Tensor, Tensor]:
    images, labels = labelled(count, 1.0, seed)
    return images * torch.tensor([0.3, 0.5, 0.9]).view(1, 3, 1, 1) + 0.25, labels


def accuracy(adapter: ttc.Adapter, images: Tensor, labels: Tensor, size: int) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        predictions = torch.cat([adapter(batch) for batch in images.split(size)])
    return (predictions.argmax(1) == labels).float().mean().item()


def test_one_batch_is_its_images_one_by_one() -> None:
    torch.manual_seed(0)
    source = nn.BatchNorm2d(3)
    source.running_mean = torch.tensor([0.1, -0.4, 0.2])
    images = torch.randn(1, 3, 5, 5).expand(7, 3, 5, 5) * 2 + 1  # equal images: the order cannot matter
    together, singly = EmaNorm(source, weight=0.05), EmaNorm(source, weight=0.05)
    together(images)
    for image in images:
        singly(image[None])
    assert together.mean is not None
    assert singly.mean is not None
    torch.testing.assert_close(together.mean, singly.mean)
    torch.testing.assert_close(together.variance, singly.variance)
    assert torch.equal(source.running_mean, torch.tensor([0.1, -0.4, 0.2]))


def test_the_average_is_the_one_of_all_values_weighted() -> None:
    generator = torch.Generator().manual_seed(0)
    source = nn.BatchNorm2d(2)
    layer = EmaNorm(source, weight=0.1)
    images = torch.randn(30, 2, 4, 4, generator=generator) * torch.rand(30, 1, 1, 1, generator=generator)
    for image in images:
        layer(image[None])
    ages = torch.arange(29, -1, -1, dtype=torch.float64)
    weights = 0.1 * 0.9**ages
    per_image = images.double().flatten(2)
    mean = (weights[:, None] * per_image.mean(2)).sum(0)
    square = (weights[:, None] * per_image.square().mean(2)).sum(0) + 0.9**30  # of the source: mean 0, variance 1
    assert layer.mean is not None
    assert layer.variance is not None
    torch.testing.assert_close(layer.mean.double(), mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(layer.variance.double(), square - mean.square(), rtol=1e-4, atol=1e-5)


def test_single_values_have_statistics_too() -> None:
    layer = EmaNorm(nn.BatchNorm1d(2), weight=0.5)
    for value in (1.0, -1.0, 1.0, -1.0):
        assert layer(torch.full((1, 2), value)).isfinite().all()
    assert layer.variance is not None
    assert (layer.variance > 0.1).all()


@pytest.mark.parametrize("policy", [True, "blend", "window"])
@pytest.mark.parametrize("name", sorted(ttc.METHODS))
def test_every_method_takes_the_switch(
    name: str, policy: bool | str, model: nn.Module, stream: list[Tensor], tmp_path: Path
) -> None:
    options = OPTIONS.get(name, {})
    adapter = ttc.adapt(model, name, small_batches=policy, **options)
    kinds = {type(module) for module in adapter.model.modules()}
    assert BatchStatisticsNorm not in kinds
    images = torch.cat(stream)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if policy == "blend" else "error")  # no word about batches of one any more
        predictions = [adapter(image[None]) for image in images[:20]] + [adapter(images[20:50]), adapter(images[50:51])]
    assert all(prediction.isfinite().all() for prediction in predictions)
    adapter.save(tmp_path / "small.safetensors")
    loaded = ttc.load_adaptation(model, tmp_path / "small.safetensors", **options)
    assert torch.equal(loaded(images[51:55]), adapter(images[51:55]))
    adapter.reset()
    assert torch.equal(adapter(images[:1]), predictions[0])


def test_a_rejected_batch_leaves_the_average_alone(model: nn.Module, stream: list[Tensor]) -> None:
    adapter, untroubled = (ttc.adapt(model, "ttc", small_batches=True) for _ in range(2))
    adapter(stream[0]), untroubled(stream[0])
    with pytest.raises(ttc.TTCError, match="check the range of the images"):
        adapter(torch.full_like(stream[0], 3e38))
    adapter.predict(stream[2])
    assert torch.equal(adapter(stream[1]), untroubled(stream[1]))


def test_half_precision_averages_in_float32(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(copy.deepcopy(model).bfloat16(), "ttc", small_batches=True)
    layer = next(module for module in adapter.model.modules() if isinstance(module, EmaNorm))
    assert layer.mean is not None
    assert layer.mean.dtype == torch.float32
    assert adapter(stream[0].bfloat16()).dtype == torch.bfloat16


def test_steps_follow_samples_whatever_the_batch(model: nn.Module, labelled: Images) -> None:
    images, _ = shifted(labelled, 420, seed=5)
    for size in (1, 7, 30):
        adapter = ttc.adapt(model, "tent", small_batches=True)
        assert isinstance(adapter, ClusteringAdapter)
        steps = 0
        for batch in images.split(size):
            before = adapter.updater.accumulated_samples
            adapter(batch)
            steps += adapter.updater.accumulated_samples < before
        assert steps == 2, size


def test_skipped_batches_count_towards_the_step(model: nn.Module) -> None:
    parameter = nn.Parameter(torch.zeros(1))
    updater = Updater([parameter], lambda parameters: torch.optim.SGD(parameters, lr=1.0))
    updater.skip(500)
    assert updater.accumulated_samples == 0  # counting batches, as the paper does
    updater.use_small_batches_(SmallBatches(samples_per_step=10, image_weight=0.01))
    updater((parameter * 2).sum(), 4)
    updater.skip(5)
    assert parameter.item() == 0
    updater.skip(1)
    assert parameter.item() == -2
    updater.skip(10)
    assert parameter.item() == -2
    assert updater.accumulated_samples == 0


def test_selection_remembers_the_mean_over_the_stream() -> None:
    select = BelowMeanEntropy(image_weight=0.1)

    def weights(*entropies: float) -> list[float]:
        value = torch.tensor(entropies)
        return select(Assignment(torch.zeros(len(value), 2), value, ())).tolist()

    assert weights(1.0) == [1.0]
    assert weights(3.0) == [0.0]  # the mean is now 1.2
    assert weights(1.1) == [1.0]
    assert weights(1.1, 5.0) == [1.0, 0.0]


def test_an_unknown_policy_is_rejected(model: nn.Module) -> None:
    with pytest.raises(
        ttc.TTCError, match="small_batches is True, False or one of 'average', 'blend', 'window', got 'tiny'"
    ):
        ttc.adapt(model, "ttc", small_batches="tiny")


def test_a_model_without_source_statistics_is_rejected() -> None:
    bare = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False), nn.Flatten(), nn.Linear(16, 2)
    )
    with pytest.raises(ttc.TTCError, match="a BatchNorm of the model stores no source statistics"):
        ttc.adapt(bare, "ttc", small_batches=True)
    with pytest.raises(ttc.TTCError, match=r"lies in \[0, 1\], got 2"):
        EmaNorm(nn.BatchNorm2d(4), weight=2)


@pytest.mark.parametrize("size", [1, 2, 8, 50])
def test_ttc_on_small_batches_beats_the_source_and_nears_itself_on_large_ones(
    size: int, model: nn.Module, labelled: Images
) -> None:
    images, labels = shifted(labelled, 400, seed=11)
    source = accuracy(ttc.adapt(model, "source"), images, labels, 100)
    large = accuracy(ttc.adapt(model, "ttc"), images, labels, 100)
    small = accuracy(ttc.adapt(model, "ttc", small_batches=True), images, labels, size)
    assert large > source + 0.1  # the shift is one that adaptation mends
    assert small > source
    assert small > large - 0.06
