"""The model that comes with the package."""

from importlib.resources import files

import pytest
import torch

import ttc
from ttc.data import as_tensor
from ttc.data import embedded as embedded_images
from ttc.errors import TTCError
from ttc.files import checksum
from ttc.models import build, embedded, embedded_card


def test_its_card_tells_the_truth() -> None:
    card = embedded_card()
    weights = files("ttc.models") / "default" / card["weights"]
    assert checksum(weights) == card["sha256"]
    assert card["clean_accuracy"] >= 0.91
    assert card["clean_images"] == 10_000
    assert sum(parameter.numel() for parameter in embedded().parameters()) == card["parameters"]


def test_it_classifies_the_embedded_images() -> None:
    images = embedded_images()
    model, index = embedded(), range(300)
    assert not model.training
    with torch.inference_mode():
        answers = model(as_tensor(images.pixels(index))).argmax(1)
    accuracy = (answers.numpy() == images.labels[:300]).mean()
    assert accuracy > 0.87  # three standard errors below its clean accuracy


def test_each_call_gives_a_model_of_its_own() -> None:
    assert embedded() is not embedded()


def test_it_adapts() -> None:
    images = as_tensor(embedded_images().pixels(range(50)))
    assert ttc.adapt(embedded(), "ttc")(images).shape == (50, 10)


def test_it_has_a_name_as_other_models_do() -> None:
    x = torch.rand(2, 3, 32, 32)
    assert torch.equal(build("embedded")(x), embedded()(x))
    with pytest.raises(TTCError, match="comes with its weights and input statistics, for 10 classes; for weights or"):
        build("embedded", num_classes=100)
