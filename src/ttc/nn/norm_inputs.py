"""Record what enters the normalization layers of a network, averaged over positions."""

from typing import Any

import torch
from torch import Tensor, nn

from ttc.core.statistics import norm_layers


class NormInputs:
    """Records the spatial mean of every normalization layer's input, while it is switched on.

    Args:
        model: The network to listen to; the hooks stay, so that it runs the same way at every call.
    """

    def __init__(self, model: nn.Module) -> None:
        self.recording = False
        self.means: list[Tensor] = []
        for _, layer in norm_layers(model):
            layer.register_forward_pre_hook(self._record)

    def start(self) -> None:
        """Record from now on."""
        self.recording, self.means = True, []

    def stop(self) -> list[Tensor]:
        """Stop recording; return the means of each layer in the order of calls, each (N, C)."""
        means, self.recording, self.means = self.means, False, []
        return means

    def _record(self, layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        if self.recording:
            x = inputs[0]
            positions = range(1, x.ndim - 1) if isinstance(layer, nn.LayerNorm) else range(2, x.ndim)
            self.means.append(x.mean(list(positions)) if len(positions) else x)


def mean_distance(left: list[Tensor], right: list[Tensor], count: int) -> Tensor:
    """The mean over layers of the mean squared difference of two recordings: one value per image (N,).

    >>> mean_distance([torch.zeros(2, 3)], [torch.ones(2, 3)], 2).tolist()
    [1.0, 1.0]
    """
    if not left:
        return torch.zeros(())
    distances = [(one - other).square().reshape(count, -1).mean(1) for one, other in zip(left, right, strict=True)]
    return torch.stack(distances).mean(0)
