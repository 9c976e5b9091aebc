"""Private copies of a classifier: frozen, with trainable normalization layers, or as it was before adaptation."""

import copy
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from ttc.core.adapter import Adapter
from ttc.core.classifier import Classifier
from ttc.core.state import changeable_tensors
from ttc.core.statistics import norm_layers
from ttc.errors import TTCError
from ttc.nn.normalization import BatchStatisticsNorm, BlendNorm, SourceNorm, StatisticsNorm
from ttc.nn.surgery import Statistics, replace_norm_, replace_norms_, source_statistics


def frozen_copy(model: Classifier, statistics: Statistics = source_statistics) -> Classifier:
    """Copy a classifier, with nothing to train.

    Args:
        model: The classifier; it is not changed.
        statistics: Makes the layer that replaces each BatchNorm; the source statistics unless given.

    Returns:
        A private copy.
    """
    with torch.inference_mode(False):
        prepared = copy.deepcopy(model)
        replace_norms_(prepared.network, statistics)
    return prepared


def below_top(name: str) -> bool:
    """Tell whether a layer lies below the top of the network, by the names of public ResNets and ViTs.

    The top is ``layer4``, the blocks 9 to 11, and the final ``norm``; in other networks nothing is left out.

    Example:
        >>> [below_top(name) for name in ("layer1.0.bn1", "layer4.0.bn1", "blocks.8.norm1", "blocks.11.norm1", "norm")]
        [True, False, True, False, False]
    """
    parts = name.split(".")
    top_blocks = {("blocks", "9"), ("blocks", "10"), ("blocks", "11")}
    return "layer4" not in parts and parts[0] != "norm" and not top_blocks & set(pairwise(parts))


def copy_with_trainable_norms(
    model: Classifier, statistics: Statistics = BatchStatisticsNorm, *, trains: Callable[[str], bool] | None = None
) -> Classifier:
    """Copy a classifier in which the scale and shift of every normalization layer, and nothing else, are trainable.

    Args:
        model: The classifier; it is not changed.
        statistics: Makes the layer that replaces each BatchNorm; those of the batch unless given.
        trains: Maps the name of a normalization layer in the network to whether it is trainable; all are unless given.

    Returns:
        A private copy.

    Raises:
        TTCError: If the model has no normalization layer with scale and shift.
    """
    prepared = frozen_copy(model, statistics)
    for name, layer in norm_layers(prepared.network):
        for parameter in layer.parameters(recurse=False):
            parameter.requires_grad_(trains is None or trains(name))
    if not any(parameter.requires_grad for parameter in prepared.parameters()):
        raise TTCError(
            "the model has no normalization layer with scale and shift to adapt; use 't3a' or 'source', which need none"
        )
    return prepared


def copy_with_trainable_parameters(
    model: Classifier, statistics: Statistics = BatchStatisticsNorm, *, head: bool = True
) -> Classifier:
    """Copy a classifier in which all parameters are trainable, with or without those of the head.

    Args:
        model: The classifier; it is not changed.
        statistics: Makes the layer that replaces each BatchNorm; those of the batch unless given.
        head: Whether the parameters of the head are trainable too.

    Returns:
        A private copy.

    Raises:
        TTCError: If nothing is left to train.
    """
    prepared = frozen_copy(model, statistics).requires_grad_(True)
    prepared.head.requires_grad_(head)
    if not any(parameter.requires_grad for parameter in prepared.parameters()):
        raise TTCError("the model has no parameters beside its head to adapt; use 't3a' or 'source', which need none")
    return prepared


def source_classifier(adapter: Adapter) -> Classifier:
    """Copy the classifier as it was before adaptation; parameters that adaptation cannot change are shared.

    Args:
        adapter: Any adapter, before or after its first batch.

    Returns:
        A frozen classifier with the source statistics.
    """
    shared = {id(parameter): parameter for parameter in adapter.model.parameters() if not parameter.requires_grad}
    model = copy.deepcopy(adapter.model, shared)
    with torch.no_grad():
        for name, tensor in changeable_tensors(model).items():
            tensor.copy_(adapter.initial_tensors[name])
    for name, layer in list(model.network.named_modules()):
        if isinstance(layer, StatisticsNorm) and layer.mean is not None:
            model.network.set_submodule(name, SourceNorm(layer).eval())
    return model.requires_grad_(False)


def blended_copy(source: Classifier, *, alpha: float, source_pseudo_count: float) -> Classifier | None:
    """Copy a frozen classifier, with source statistics blended with those of each batch; parameters are shared.

    The batch counts less from layer to layer, in order of registration: first layers show the corruption, later ones
    also the classes that happen to be in the batch.

    Args:
        source: What :func:`source_classifier` returned.
        alpha: The largest weight of the batch: that in the first of L layers. In layer l = 0 … L - 1 it is
            alpha · (1 - l / (L - 1))².
        source_pseudo_count: The number of images that the source statistics count for.

    Returns:
        The copy, or None if no layer stores statistics, or one of them cannot be replaced.
    """
    model = copy.deepcopy(source, {id(parameter): parameter for parameter in source.parameters()})
    names = [name for name, layer in model.network.named_modules() if isinstance(layer, SourceNorm | _BatchNorm)]
    for index, name in enumerate(names):
        weight = alpha * (1 - index / max(1, len(names) - 1)) ** 2
        try:
            replace_norm_(
                model.network, name, partial(BlendNorm, alpha=weight, source_pseudo_count=source_pseudo_count)
            )
        except TTCError:
            return None
    return model if names else None
