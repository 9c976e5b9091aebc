"""The source model included in the package: a ResNet-20 trained on CIFAR-10 by ``ttc train``."""

import json
from importlib.resources import files
from typing import Any

from safetensors.torch import load
from torch import nn

from ttc.models.zoo import MODELS

NAME = "resnet20"


def embedded() -> nn.Module:
    """Load the model included in the package: a ResNet-20 trained on CIFAR-10.

    Returns:
        A new model in evaluation mode, for 32 x 32 images in [0, 1].

    Example:
        >>> import torch
        >>> embedded()(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    model = MODELS[NAME]()
    model.load_state_dict(load((files("ttc.models") / "default" / f"{NAME}.safetensors").read_bytes()))
    return model.eval()


def embedded_card() -> dict[str, Any]:
    """Load the model card of the embedded model.

    Returns:
        The content of its ``card.json``: recipe, seed, accuracies, checksum.

    Example:
        >>> embedded_card()["model"]
        'resnet20'
    """
    card: dict[str, Any] = json.loads((files("ttc.models") / "default" / "card.json").read_text("utf-8"))
    return card
