"""Model surgery: replace the BatchNorm layers of a private network by layers with other statistics, in place."""

from collections.abc import Callable

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ttc.errors import TTCError
from ttc.nn.normalization import StatisticsNorm

Statistics = Callable[[_BatchNorm], nn.Module]
"""Makes the layer that replaces a BatchNorm."""


def source_statistics(layer: _BatchNorm) -> nn.Module:
    """Return the layer itself: in evaluation mode it normalizes with the stored source mean and variance."""
    return layer


def replace_norms_(network: nn.Module, statistics: Statistics) -> None:
    """Replace every BatchNorm of a private network by the layer that ``statistics`` makes of it, in place."""
    if statistics is source_statistics:
        return
    for name, layer in list(network.named_modules()):
        if isinstance(layer, _BatchNorm):
            network.set_submodule(name, _replacement(name, layer, statistics))


def replace_batch_norms_(network: nn.Module, statistics: Callable[[StatisticsNorm], nn.Module]) -> None:
    """Replace every layer of a prepared network that uses the statistics of the batch alone, in place."""
    for name, layer in list(network.named_modules()):
        if isinstance(layer, StatisticsNorm) and layer.needs_large_batches:
            network.set_submodule(name, statistics(layer).eval())


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
