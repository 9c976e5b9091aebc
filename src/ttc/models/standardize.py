"""Input standardization as a layer, so that every model takes images in [0, 1]."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

CIFAR10_STATISTICS = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
CIFAR100_STATISTICS = ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
IMAGENET_STATISTICS = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))

InputStatistics = tuple[Sequence[float], Sequence[float]]


class Standardize(nn.Module):
    """``(x - mean) / std`` per channel; the buffers are not in the state dict, as public checkpoints lack them."""

    mean: Tensor
    std: Tensor

    def __init__(self, statistics: InputStatistics) -> None:
        super().__init__()
        mean, std = statistics
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


def standardization(statistics: InputStatistics | None) -> nn.Module:
    """Make the input layer for ``statistics``; with ``None`` the network gets the raw [0, 1] pixels."""
    return nn.Identity() if statistics is None else Standardize(statistics)
