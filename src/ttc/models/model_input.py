"""What a model takes and returns: how images are fitted to it, and its number of classes."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from ttc.data.decoding import Fitting
from ttc.data.images import Images
from ttc.data.named import open_dataset
from ttc.errors import TTCError


class ModelInput(NamedTuple):
    """How images are fitted to a model, None where it does not state a size, and its number of classes."""

    fitting: Fitting | None
    num_classes: int


def model_input(model: nn.Module, size: tuple[int, int] = (224, 224)) -> ModelInput:
    """Find out how images are fitted to a model and how many classes it has.

    Models of the zoo, timm and torchvision state the size of their images; a model of your own may do so by attributes:
    ``side`` in pixels, and ``resize`` (of the shorter side, before the centre crop) and ``interpolation``
    (``"bilinear"`` or ``"bicubic"``) where they are not the usual ones.

    Args:
        model: A classifier of images (N, 3, H, W) in [0, 1].
        size: The height and width of the images, for a model that does not state a size.

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
    return ModelInput(fitting, _num_classes(model, *((fitting.side, fitting.side) if fitting else size)))


def open_fitted(model: nn.Module, name: str, root: Path) -> tuple[Images, ModelInput]:
    """Open the clean images of a dataset by name, fitted to a model and labelled by its classes.

    Args:
        model: A classifier of images (N, 3, H, W) in [0, 1].
        name: A name that :func:`ttc.data.open_dataset` takes.
        root: The data directory.

    Returns:
        The dataset, and what the model takes.

    Raises:
        TTCError: The data is missing, or the images do not fit the model.
    """
    opened = open_dataset(name, root, stated_fitting(model))
    height, width = opened.pixels([0]).shape[1:3]
    takes = model_input(model, (height, width))
    return open_dataset(name, root, *takes), takes


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


def choose_fitting(model: nn.Module, size: int | None = None) -> Fitting | None:
    """Return how images are fitted to a model: as it states, or in proportion for another size.

    Args:
        model: The model.
        size: The side of the images in pixels; by default that which the model states.

    Returns:
        The fitting; None if there is no size and the model states none.

    Example:
        >>> from ttc.models import build
        >>> choose_fitting(build("imagenet-resnet18"), 112)
        Fitting(side=112, resize=128, interpolation='bilinear')
    """
    own = stated_fitting(model)
    if own is None or size is None:
        return own if size is None else Fitting.to(size)
    return Fitting(size, round(size * own.resize / own.side), own.interpolation)


def _num_classes(model: nn.Module, height: int, width: int) -> int:
    like = next(model.parameters(), torch.zeros(()))
    training = model.training
    try:
        with torch.no_grad():
            logits = model.eval()(torch.zeros(1, 3, height, width, dtype=like.dtype, device=like.device))
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise TTCError(
            f"the model cannot process an image of {width} x {height} pixels ({reason}): state the size of its images "
            "by an attribute, model.side"
        ) from error
    finally:
        model.train(training)
    if not isinstance(logits, torch.Tensor) or logits.ndim != 2:
        raise TTCError("the model must return logits as a tensor (N, K): wrap it, see docs/own-model.md")
    return int(logits.shape[1])
