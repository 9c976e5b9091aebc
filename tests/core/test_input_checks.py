"""The first batch is checked once, and only contradictions are reported."""

import copy
import warnings

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.core.input_checks import find_softmax, find_standardization

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)


class Standardizing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean, self.std = [0.5], [0.25]

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean[0]) / self.std[0]


def warned(adapter: ttc.Adapter, x: Tensor) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        adapter(x)
    return [str(warning.message) for warning in caught]


def test_pixels_up_to_255_are_reported_once(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "ttc")
    (message,) = warned(adapter, stream[0] * 200)
    assert "which looks like pixels in 0..255; adapters take [0, 1]: pass images / 255" in message
    assert warned(adapter, stream[1] * 200) == []


def test_images_standardized_twice_are_reported(model: nn.Module, stream: list[Tensor]) -> None:
    standardized = (stream[0] - 0.5) / 0.25
    (message,) = warned(ttc.adapt(model, "ttc", normalize=(MEAN, STD)), standardized)
    assert "looks standardized already, and normalize= standardizes them again" in message
    (message,) = warned(ttc.adapt(nn.Sequential(Standardizing(), copy.deepcopy(model)), "ttc"), standardized)
    assert "the model standardizes them in its layer 'network.0' again" in message


def test_what_may_be_meant_is_not_reported(model: nn.Module, stream: list[Tensor]) -> None:
    assert warned(ttc.adapt(model, "ttc"), (stream[0] - 0.5) / 0.25) == []  # a model that expects such images
    assert warned(ttc.adapt(model, "ttc", normalize=(MEAN, STD)), stream[0] - 0.1) == []  # a little noise
    assert warned(ttc.adapt(model, "ttc"), stream[0] * 1000) == []  # no pixels of any kind


def test_a_model_that_names_its_statistics_is_believed(model: nn.Module, stream: list[Tensor]) -> None:
    named = copy.deepcopy(model)
    named.pretrained_cfg = {"mean": MEAN, "std": STD}  # type: ignore[assignment]
    images = stream[0].clamp(0, 1)
    (message,) = warned(ttc.adapt(named, "ttc"), images)
    assert f"adapt with normalize={(MEAN, STD)}" in message
    assert warned(ttc.adapt(named, "ttc", normalize=(MEAN, STD)), images) == []
    named.pretrained_cfg = {"mean": (0, 0, 0), "std": (1, 1, 1)}  # type: ignore[assignment]
    assert warned(ttc.adapt(named, "ttc"), images) == []


def test_layers_are_found_by_what_they_are() -> None:
    assert find_standardization(nn.Sequential(Standardizing(), nn.Linear(2, 2))) == "0"
    assert find_standardization(nn.Sequential(nn.BatchNorm2d(2))) is None
    assert find_standardization(ttc.models.build("resnet20")) is not None
    assert find_softmax(nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout(), nn.Softmax(1)))) == "1.1"
    assert find_softmax(nn.Sequential(nn.Softmax(1), nn.Linear(2, 2))) is None
    assert find_softmax(nn.Sequential(nn.Linear(2, 2), nn.LogSoftmax(1))) is None  # log-probabilities are logits


@pytest.mark.parametrize("name", ["embedded", "resnet20"])
def test_our_own_models_are_not_suspected(name: str) -> None:
    adapter = ttc.adapt(ttc.models.build(name), "ttc")
    assert warned(adapter, torch.rand(4, 3, 32, 32)) == []
