"""The model included in the package."""

from importlib.resources import files

import torch

import ttc
from ttc.data import as_tensor
from ttc.data import embedded as embedded_images
from ttc.files import checksum
from ttc.models import embedded, embedded_card
from ttc.models.card import ModelCard, card_markdown


def test_its_card_is_correct() -> None:
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
        predictions = model(as_tensor(images.pixels(index))).argmax(1)
    accuracy = (predictions.numpy() == images.labels[:300]).mean()
    assert accuracy > 0.87  # three standard errors below its clean accuracy


def test_each_call_gives_a_model_of_its_own() -> None:
    assert embedded() is not embedded()


def test_it_adapts() -> None:
    images = as_tensor(embedded_images().pixels(range(50)))
    assert ttc.adapt(embedded(), "ttc")(images).shape == (50, 10)


def test_its_card_is_formatted_by_this_version() -> None:
    folder = files("ttc.models") / "default"
    assert (folder / "card.md").read_text("utf-8") == card_markdown(ModelCard(**embedded_card()))
