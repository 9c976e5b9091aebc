"""Model surgery: replace the BatchNorm layers of a private network by layers with other statistics, in place."""

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ttc.errors import TTCError
from ttc.nn.normalization import StatisticsNorm

Statistics = Callable[[_BatchNorm], nn.Module]
"""Makes the layer that replaces a BatchNorm."""

PLAIN_FORWARDS = (_BatchNorm.forward, nn.SyncBatchNorm.forward)


def source_statistics(layer: _BatchNorm) -> nn.Module:
    """Return the layer itself: in evaluation mode it normalizes with the stored source mean and variance."""
    return layer


def replace_norms_(network: nn.Module, statistics: Statistics) -> None:
    """Replace every BatchNorm of a private network by the layer that ``statistics`` makes of it, in place."""
    if statistics is source_statistics:
        return
    for name, layer in list(network.named_modules()):
        if isinstance(layer, _BatchNorm):
            replace_norm_(network, name, statistics)


def replace_norm_(network: nn.Module, name: str, statistics: Callable[[Any], nn.Module]) -> None:
    """Replace one normalization layer of a private network by the layer that ``statistics`` makes of it, in place.

    Args:
        network: The network that has the layer.
        name: The name of a BatchNorm, or of a layer that replaced one.
        statistics: Makes the new layer.

    Raises:
        TTCError: If it is a BatchNorm with a forward of its own.
    """
    layer = network.get_submodule(name)
    following = list(layer.children())
    own_forward = isinstance(layer, _BatchNorm) and type(layer).forward not in PLAIN_FORWARDS
    if own_forward and not following:
        raise TTCError(
            f"the layer '{name}' ({type(layer).__name__}) is a BatchNorm with a forward of its own, which a change of "
            "statistics would lose; use a plain BatchNorm there"
        )
    made = statistics(layer)
    # Norm-and-activation layers (timm's BatchNormAct2d) hold what comes after the normalization as children.
    network.set_submodule(name, (nn.Sequential(made, *following) if following else made).eval())


def replace_batch_norms_(network: nn.Module, statistics: Callable[[StatisticsNorm], nn.Module]) -> None:
    """Replace every layer of a prepared network that uses the statistics of the batch alone, in place."""
    for name, layer in list(network.named_modules()):
        if isinstance(layer, StatisticsNorm) and layer.needs_large_batches:
            replace_norm_(network, name, statistics)
