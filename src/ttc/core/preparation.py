"""What adaptation may change: private copies of a classifier, frozen or with tunable normalization layers."""

import copy
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ttc.core.classifier import Classifier
from ttc.core.normalization import BatchNorm, NamedNorm
from ttc.core.replacement import Statistics, source_statistics, with_statistics
from ttc.errors import TTCError

NORM_TYPES: tuple[type[nn.Module], ...] = (
    _BatchNorm,
    nn.modules.instancenorm._InstanceNorm,
    nn.LayerNorm,
    nn.GroupNorm,
    NamedNorm,
)


def frozen(model: Classifier, statistics: Statistics = source_statistics) -> Classifier:
    """A copy with nothing to train, whose BatchNorm layers use the given statistics."""
    with torch.inference_mode(False):
        prepared = copy.deepcopy(model)
        with_statistics(prepared.network, statistics)
    return prepared


def norm_tunable(model: Classifier, statistics: Statistics = BatchNorm) -> Classifier:
    """A copy in which the scale and shift of every normalization layer, and nothing else, require gradients."""
    prepared = frozen(model, statistics)
    for _, layer in norm_layers(prepared):
        for parameter in layer.parameters(recurse=False):
            parameter.requires_grad_(True)
    if not any(parameter.requires_grad for parameter in prepared.parameters()):
        raise TTCError(
            "the model has no normalization layer with scale and shift to adapt; use 't3a' or 'source', which need none"
        )
    return prepared


def norm_layers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The normalization layers of a model with their names."""
    return ((name, module) for name, module in model.named_modules() if isinstance(module, NORM_TYPES))
