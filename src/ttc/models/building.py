"""Build a model from its name, as every command does."""

from pathlib import Path

import torch
from torch import nn

from ttc.errors import TTCError, unknown
from ttc.models.embedded_model import embedded
from ttc.models.external import import_model, timm_model, torchvision_model
from ttc.models.weight_files import head_classes, load_state_dict, read_state_dict
from ttc.models.zoo import MODELS


def build(
    name: str,
    num_classes: int | None = None,
    checkpoint: Path | str | None = None,
    statistics: str | None = None,
    *,
    pretrained: bool = True,
) -> nn.Module:
    """Build the model ``name`` in evaluation mode; it takes images in [0, 1].

    Args:
        name: ``embedded``, a key of ``MODELS``, ``timm:NAME``, ``torchvision:NAME[@WEIGHTS]``, or
            ``package.module:function`` for your own model.
        num_classes: The number of classes; by default that of the checkpoint, else that of the dataset the
            architecture was published for.
        checkpoint: A file with weights. Without it, an architecture of ``MODELS`` has random weights and a timm or
            torchvision model its pretrained ones.
        statistics: A key of ``INPUT_STATISTICS`` that replaces the default of an architecture of ``MODELS``; other
            models come with their own.
        pretrained: False builds a timm or torchvision model without its weights, which are not downloaded.

    Returns:
        The model.

    Raises:
        TTCError: The name is unknown, the weights do not fit, or an optional package is not installed.

    Example:
        >>> import torch
        >>> build("resnet20", num_classes=7)(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 7])
    """
    if num_classes is not None and num_classes < 1:
        raise TTCError(f"the number of classes must be at least 1, got {num_classes}")
    kind, _, rest = name.partition(":")
    checkpoint = None if checkpoint is None else Path(checkpoint)
    if name == "embedded":
        if checkpoint is not None or statistics is not None or num_classes not in {None, 10}:
            raise TTCError(
                "the embedded model has fixed weights, input statistics and 10 classes: "
                "to set any of them, name an architecture such as resnet20"
            )
        return embedded()
    if name in MODELS:
        return _zoo_model(name, num_classes, checkpoint, statistics).eval()
    if not rest:
        raise unknown("model", name, ("embedded", *MODELS, "timm:NAME", "torchvision:NAME", "package.module:function"))
    if statistics is not None:
        raise TTCError(f"{name} has its own input statistics: omit statistics={statistics!r}")
    external = {"timm": timm_model, "torchvision": torchvision_model}
    model = (
        external[kind](rest, num_classes, checkpoint, pretrained)
        if kind in external
        else import_model(name, num_classes, checkpoint)
    )
    return model.eval()


def build_trained(
    name: str,
    num_classes: int | None = None,
    checkpoint: Path | str | None = None,
    statistics: str | None = None,
    device: str = "cpu",
) -> nn.Module:
    """Build a model that has weights, on a device, for the commands that adapt it.

    Args:
        name: The name of the model, as for :func:`build`, whose arguments the next three are too.
        num_classes: The number of classes.
        checkpoint: A file with weights; an architecture of ``MODELS`` needs one.
        statistics: A key of ``INPUT_STATISTICS``.
        device: Where the model goes.

    Returns:
        The model, in evaluation mode.

    Raises:
        TTCError: The model would have random weights, cannot be built, or the device cannot be used.
    """
    if checkpoint is None and name in MODELS:
        raise TTCError(f"the model '{name}' has no weights of its own; pass them with --checkpoint FILE")
    network = build(name, num_classes, checkpoint, statistics)
    try:
        return network.to(torch.device(device))
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise TTCError(f"the device {device!r} cannot be used here ({reason}): try --device cpu") from error


def _zoo_model(name: str, num_classes: int | None, checkpoint: Path | None, statistics: str | None) -> nn.Module:
    state = read_state_dict(checkpoint) if checkpoint else None
    classes = num_classes or (head_classes(state) if state else None)
    model = MODELS[name](statistics=statistics, **({} if classes is None else {"num_classes": classes}))
    if state:
        load_state_dict(model, state, str(checkpoint))
    return model
