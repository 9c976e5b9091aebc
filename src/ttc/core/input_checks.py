"""Checks of the first batch and of the last layer: wrongly scaled images, models that end in softmax."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from ttc.core.interface import PixelNormalization

MARGIN = 0.25  # noise and interpolation may leave [0, 1] a little
PIXELS_FROM = 8.0  # standardized images stay below: (1 - 0.4) / 0.2 is 3


def find_standardization(model: nn.Module) -> str | None:
    """Return the name of the layer that standardizes images, None if there is none.

    Such a layer has a ``mean`` and a ``std`` and no parameters, as that of torchvision and those of this package.
    """
    for name, module in model.named_modules():
        has_both = all(isinstance(getattr(module, part, None), Tensor | tuple | list) for part in ("mean", "std"))
        if has_both and next(module.parameters(), None) is None:
            return str(name)
    return None


def find_softmax(model: nn.Module) -> str | None:
    """Return the name of the softmax layer that a model of layers in a row ends in, None if there is none.

    Example:
        >>> find_softmax(nn.Sequential(nn.Flatten(), nn.Linear(4, 2), nn.Softmax(1)))
        '2'
    """
    name, last = "", model
    while isinstance(last, nn.Sequential) and len(last):
        key = list(last._modules)[-1]
        name, last = f"{name}.{key}".lstrip("."), last[-1]
    return name if isinstance(last, nn.Softmax) else None


def input_warning(x: Tensor, model: nn.Module) -> str | None:
    """Return what is probably wrong with the values of the first batch, None if nothing is known to be.

    A model may expect standardized images and get them; only contradictions are reported.

    Args:
        x: The first batch.
        model: The prepared classifier.
    """
    low, high = float(x.min()), float(x.max())
    seen = f"the images have values from {low:.3g} to {high:.3g}"
    if low >= 0 and PIXELS_FROM < high <= 256:
        return f"{seen}, which looks like pixels in 0..255; adapters take [0, 1]: pass images / 255"
    if low < -MARGIN and (layer := find_standardization(model)) is not None:
        own = isinstance(model.get_submodule(layer), PixelNormalization)
        by = "normalize= standardizes them" if own else f"the model standardizes them in its layer '{layer}'"
        return f"{seen}, which looks standardized already, and {by} again; pass images in [0, 1]"
    statistics = _training_statistics(getattr(model, "network", model))
    if statistics is not None and find_standardization(model) is None and low >= 0 and high <= 1:
        return (
            f"{seen}, and the model was trained on images standardized with mean {statistics[0]} and std "
            f"{statistics[1]}; adapt with normalize={statistics}"
        )
    return None


def _training_statistics(network: nn.Module) -> tuple[Any, Any] | None:
    """Return the mean and std that a model of timm was trained with, unless they change nothing."""
    config = getattr(network, "pretrained_cfg", None)
    if not isinstance(config, Mapping) or not config.get("mean") or not config.get("std"):
        return None
    mean, std = tuple(config["mean"]), tuple(config["std"])
    return None if not any(mean) and set(std) == {1} else (mean, std)
