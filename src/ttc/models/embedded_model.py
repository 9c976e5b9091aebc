"""The source model that comes with the package: a ResNet-20 trained on CIFAR-10 by ``ttc train``."""

import json
from importlib.resources import files
from typing import Any

from safetensors.torch import load
from torch import nn

from ttc.models.zoo import MODELS

NAME = "resnet20"


def embedded() -> nn.Module:
    """The embedded ResNet-20 in evaluation mode, for 32x32 images in [0, 1]; a new one at each call."""
    model = MODELS[NAME]()
    model.load_state_dict(load((files("ttc.models") / "default" / f"{NAME}.safetensors").read_bytes()))
    return model.eval()


def embedded_card() -> dict[str, Any]:
    """The card of the embedded model: recipe, seed, accuracies, checksum."""
    card: dict[str, Any] = json.loads((files("ttc.models") / "default" / "card.json").read_text("utf-8"))
    return card
