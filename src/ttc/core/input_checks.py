"""Checks of batches and of the last layer: invalid tensors, wrongly scaled images, models that end in softmax."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ttc.core.interface import PROBABILITIES, PixelNormalization, are_probabilities
from ttc.core.state import Snapshot
from ttc.errors import TTCError

MARGIN = 0.25  # noise and interpolation may leave [0, 1] a little
PIXELS_FROM = 8.0  # standardized images stay below: (1 - 0.4) / 0.2 is 3


def reject_invalid(x: Tensor, weight: Tensor) -> None:
    """Check that ``x`` is a batch of images that a model with this weight can process.

    Raises:
        TTCError: If it is not, with the reason and what to do.
    """
    if not isinstance(x, Tensor):
        raise TTCError(f"expected a tensor of images (N, C, H, W), got {type(x).__name__}")
    if not x.is_floating_point():
        raise TTCError(f"expected float images, got {x.dtype}; for pixels in 0..255 pass images.float() / 255")
    if x.layout is not torch.strided:
        raise TTCError(f"expected a dense tensor of images, got layout {x.layout}; pass images.to_dense()")
    if x.ndim < 2 or x.numel() == 0:
        raise TTCError(f"expected a batch of at least one image (N, C, H, W), got shape {tuple(x.shape)}")
    if x.device != weight.device:
        raise TTCError(f"the images are on {x.device} and the model on {weight.device}; move one of them with .to()")
    if x.dtype != weight.dtype:
        raise TTCError(f"the images are {x.dtype} and the model {weight.dtype}; convert one of them with .to()")
    if weight.dtype in {torch.float16, torch.bfloat16} and _mixes_types(weight):
        raise TTCError(
            f"the model is {weight.dtype} inside torch.autocast to another type, which its layers cannot mix; "
            "leave autocast, or convert the model and the images with .float()"
        )
    if not bool(x.isfinite().all()):
        raise TTCError("the images contain NaN or infinite values; leave those images out")


@torch.no_grad()
def probe_shape(model: nn.Module, x: Tensor) -> None:
    """Run the model on a pair of images of a new shape, changing nothing, so that an invalid shape is rejected.

    Raises:
        TTCError: If the model cannot process such images, or returns probabilities.
    """
    before = Snapshot(model)
    try:
        logits = model(x[:1].expand(2, *x.shape[1:])).logits
        if are_probabilities(logits):
            raise TTCError(PROBABILITIES)
    except TTCError:
        raise
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise TTCError(f"expected {_expected_input(model)}, got shape {tuple(x.shape)}: {reason}") from error
    finally:
        before.restore(model)


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


def _mixes_types(weight: Tensor) -> bool:
    kind = weight.device.type
    return torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) != weight.dtype


def _expected_input(model: nn.Module) -> str:
    """Describe what the first convolution expects, as far as it is known."""
    ranks = {nn.Conv1d: "(N, {0}, L)", nn.Conv2d: "(N, {0}, H, W)", nn.Conv3d: "(N, {0}, D, H, W)"}
    for module in model.modules():
        for kind, shape in ranks.items():
            if isinstance(module, kind):
                return f"images of shape {shape.format(module.in_channels)}"
    return "images that the model accepts"
