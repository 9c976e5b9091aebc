"""What a model takes and returns: how images are fitted to it, and its number of classes."""

from typing import NamedTuple

import torch
from torch import nn

from ttc.data.decoding import Fitting
from ttc.errors import TTCError


class ModelInput(NamedTuple):
    """How images are fitted to a model, None where it does not state a size, and its number of classes."""

    fitting: Fitting | None
    num_classes: int


def model_input(model: nn.Module) -> ModelInput:
    """Find out how images are fitted to a model and how many classes it has.

    Models of the zoo, timm and torchvision state the size of their images; a model of your own may do so by attributes:
    ``side`` in pixels, and ``resize`` (of the shorter side, before the centre crop) and ``interpolation``
    (``"bilinear"`` or ``"bicubic"``) where they are not the usual ones.

    Args:
        model: A classifier of images (N, 3, H, W) in [0, 1].

    Returns:
        The fitting and the number of classes.

    Raises:
        TTCError: The model cannot process an image of its size, or does not return logits (N, K).

    Example:
        >>> from ttc.models import build
        >>> model_input(build("resnet20", num_classes=7))
        ModelInput(fitting=Fitting(side=32, resize=32, interpolation='bilinear'), num_classes=7)
    """
    fitting = stated_fitting(model)
    return ModelInput(fitting, _num_classes(model, fitting.side if fitting else 224))


def stated_fitting(model: nn.Module) -> Fitting | None:
    """Return how a model states that images are fitted to it, by its attributes or timm's configuration, or None."""
    config = getattr(model, "pretrained_cfg", {})  # of a timm model that a user's function returns
    side = getattr(model, "side", None) or (config.get("input_size") or [None])[-1]
    if not isinstance(side, int):
        return None
    usual, crop = Fitting.to(side), config.get("crop_pct")
    resize = getattr(model, "resize", None) or (round(side / crop) if crop else usual.resize)
    interpolation = getattr(model, "interpolation", None) or config.get("interpolation")
    return Fitting(side, resize, "bicubic" if interpolation == "bicubic" else "bilinear")


def _num_classes(model: nn.Module, side: int) -> int:
    like = next(model.parameters(), torch.zeros(()))
    training = model.training
    try:
        with torch.no_grad():
            logits = model.eval()(torch.zeros(1, 3, side, side, dtype=like.dtype, device=like.device))
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise TTCError(
            f"the model cannot process an image of {side} x {side} pixels ({reason}): state the size of its images "
            "by an attribute, model.side"
        ) from error
    finally:
        model.train(training)
    if not isinstance(logits, torch.Tensor) or logits.ndim != 2:
        raise TTCError("the model must return logits as a tensor (N, K): wrap it, see docs/own-model.md")
    return int(logits.shape[1])
