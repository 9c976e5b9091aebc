"""What a model takes: its fitting and its classes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from ttc.data import Fitting
from ttc.errors import TTCError
from ttc.models import StandardizedModel, build, model_input, open_fitted
from ttc.models.model_input import choose_fitting


def classifier(classes: int) -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, classes))


def test_models_of_the_zoo_state_their_input() -> None:
    assert model_input(build("wrn-16-1", num_classes=5)) == (Fitting(32, 32), 5)
    assert model_input(build("imagenet-resnet18")) == (Fitting(224, 256), 1000)


def test_standardized_models() -> None:
    assert model_input(StandardizedModel(classifier(4), None, 64, 70, "bicubic")) == (Fitting(64, 70, "bicubic"), 4)
    assert model_input(StandardizedModel(classifier(4), None, 224)).fitting == Fitting(224, 256)


def test_own_models_may_state_a_side() -> None:
    model = classifier(6)
    assert model_input(model) == (None, 6)
    model.side = 48  # type: ignore[assignment]
    assert model_input(model) == (Fitting.to(48), 6)


def test_a_model_that_states_no_size_gets_images_as_they_are(tmp_path: Path) -> None:
    for label in range(2):
        (tmp_path / str(label)).mkdir()
        Image.fromarray(np.zeros((6, 8, 3), np.uint8)).save(tmp_path / str(label) / "a.png")
    images, takes = open_fitted(nn.Sequential(nn.Flatten(), nn.Linear(144, 5)), f"imagefolder:{tmp_path}", tmp_path)
    assert takes == (None, 5)
    assert (images.num_classes, images.pixels([1]).shape) == (5, (1, 6, 8, 3))


def test_the_model_is_left_as_it_was() -> None:
    model = nn.Sequential(nn.BatchNorm2d(3), classifier(2)).train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    model_input(model)
    assert model.training
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_images_are_fitted_as_the_model_states() -> None:
    known = StandardizedModel(nn.Identity(), None, side=288, resize=303, interpolation="bicubic")
    assert choose_fitting(known, None) == Fitting(288, 303, "bicubic")
    assert choose_fitting(known, 320) == Fitting(320, 337, "bicubic")
    assert choose_fitting(build("imagenet-resnet18"), None) == Fitting(224, 256)
    assert choose_fitting(build("embedded"), None) == Fitting(32, 32)
    assert choose_fitting(nn.Identity(), None) is None
    own = nn.Identity()
    own.pretrained_cfg = {"input_size": (3, 64, 64), "crop_pct": 1.0, "interpolation": "random"}  # type: ignore[assignment]
    assert choose_fitting(own, None) == Fitting(64, 64)


def test_rejections() -> None:
    with pytest.raises(TTCError, match=r"cannot process an image of 224 x 224 pixels .*model.side"):
        model_input(nn.Sequential(nn.Flatten(), nn.Linear(3, 2)))

    class Pair(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x, x

    with pytest.raises(TTCError, match=r"must return logits as a tensor \(N, K\)"):
        model_input(Pair())
