"""Putting layers with other statistics in the place of a network's BatchNorm layers."""

from collections.abc import Callable

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ttc.core.normalization import BatchNorm, NamedNorm
from ttc.errors import TTCError

Statistics = Callable[[_BatchNorm], nn.Module]
"""Makes the layer that takes a BatchNorm's place."""


def source_statistics(layer: _BatchNorm) -> nn.Module:
    """The layer itself: in evaluation mode it normalizes with the stored source mean and variance."""
    return layer


def with_statistics(network: nn.Module, statistics: Statistics) -> None:
    """Replace every BatchNorm of a private network by the layer that ``statistics`` makes of it, in place."""
    if statistics is source_statistics:
        return
    for name, layer in list(network.named_modules()):
        if isinstance(layer, _BatchNorm):
            put(network, name, _replacement(name, layer, statistics))


def without_batch_statistics(network: nn.Module, statistics: Callable[[NamedNorm], nn.Module]) -> None:
    """Replace every layer of a prepared network that uses the batch's statistics alone, in place."""
    for name, layer in list(network.named_modules()):
        if isinstance(layer, BatchNorm):
            put(network, name, statistics(layer).eval())


def put(network: nn.Module, name: str, layer: nn.Module) -> None:
    """Put ``layer`` in the place called ``name``, in place."""
    parent_name, _, own = name.rpartition(".")
    setattr(network.get_submodule(parent_name), own, layer)


def _replacement(name: str, layer: _BatchNorm, statistics: Statistics) -> nn.Module:
    own_forward = type(layer).forward not in {_BatchNorm.forward, nn.SyncBatchNorm.forward}
    following = list(layer.children())
    if own_forward and not following:
        raise TTCError(
            f"the layer '{name}' ({type(layer).__name__}) is a BatchNorm with a forward of its own, which a change of "
            "statistics would lose; use a plain BatchNorm there"
        )
    # Norm-and-activation layers (timm's BatchNormAct2d) hold what comes after the normalization as children.
    return nn.Sequential(statistics(layer), *following).eval() if following else statistics(layer).eval()
