"""A model from a name: the one way every command gets its source model."""

import difflib
from pathlib import Path

from torch import nn

from ttc.errors import TTCError
from ttc.models.checkpoints import head_classes, load_state_dict, read_state_dict
from ttc.models.embedded_model import embedded
from ttc.models.external import import_model, timm_model, torchvision_model
from ttc.models.zoo import MODELS


def build(
    name: str, num_classes: int | None = None, checkpoint: Path | None = None, statistics: str | None = None
) -> nn.Module:
    """The model ``name`` in evaluation mode, taking images in [0, 1], with the weights of ``checkpoint`` if given.

    ``name`` is ``embedded``, a key of ``MODELS``, ``timm:NAME``, ``torchvision:NAME[@WEIGHTS]``, or
    ``package.module:function``. ``num_classes`` defaults to the checkpoint's, else to the architecture's dataset.
    ``statistics``, a key of ``INPUT_STATISTICS``, replaces the input statistics that belong to a zoo name; the other models
    bring their own.
    """
    if num_classes is not None and num_classes < 1:
        raise TTCError(f"the number of classes must be at least 1, got {num_classes}")
    kind, _, rest = name.partition(":")
    if name == "embedded":
        if checkpoint is not None or statistics is not None or num_classes not in {None, 10}:
            raise TTCError(
                "the embedded model comes with its weights and input statistics, for 10 classes; for weights or "
                "classes of your own, name the architecture they belong to, such as resnet20"
            )
        return embedded()
    if name in MODELS:
        return _zoo_model(name, num_classes, checkpoint, statistics).eval()
    if not rest:
        near = ", ".join(difflib.get_close_matches(name, MODELS, 3, 0.4))
        raise TTCError(
            f"unknown model {name!r}{f' (near: {near})' if near else ''}: choose embedded or one of "
            f"{', '.join(MODELS)}, or timm:NAME, torchvision:NAME, package.module:function"
        )
    if statistics is not None:
        raise TTCError(f"{name} brings its own input statistics: leave out statistics={statistics!r}")
    external = {"timm": timm_model, "torchvision": torchvision_model}
    model = (
        external[kind](rest, num_classes, checkpoint)
        if kind in external
        else import_model(name, num_classes, checkpoint)
    )
    return model.eval()


def _zoo_model(name: str, num_classes: int | None, checkpoint: Path | None, statistics: str | None) -> nn.Module:
    state = read_state_dict(checkpoint) if checkpoint else None
    classes = num_classes or (head_classes(state) if state else None)
    model = MODELS[name](statistics=statistics, **({} if classes is None else {"num_classes": classes}))
    if state:
        load_state_dict(model, state, str(checkpoint))
    return model
