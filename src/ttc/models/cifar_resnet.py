"""The CIFAR residual networks of He et al. (CVPR 2016): three stages, with the shortcuts of option A or B."""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from ttc.models.standardize import CIFAR10_STATISTICS, InputStatistics, standardization

ShortcutOption = Literal["A", "B"]


class CifarBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut.

    Where the shape changes, the shortcut of option A subsamples and pads channels with zeros; that of option B is a
    1x1 convolution with BatchNorm.
    """

    def __init__(self, in_width: int, width: int, stride: int, option: ShortcutOption) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_width, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.stride = stride
        self.padding = (width - in_width) // 2
        if self.padding and option == "B":
            conv = nn.Conv2d(in_width, width, 1, stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if hasattr(self, "shortcut"):
            x = self.shortcut(x)
        elif self.padding:
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.padding, self.padding))
        return F.relu(out + x)


class CifarResNet(nn.Module):
    """ResNet-(6n+2) for 32x32 images in [0, 1]: (N, 3, 32, 32) -> logits (N, K)."""

    def __init__(
        self,
        depth: int = 20,
        num_classes: int = 10,
        statistics: InputStatistics | None = CIFAR10_STATISTICS,
        option: ShortcutOption = "A",
    ) -> None:
        super().__init__()
        blocks = (depth - 2) // 6
        self.standardize = standardization(statistics)
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, blocks, 1, option)
        self.layer2 = _stage(16, 32, blocks, 2, option)
        self.layer3 = _stage(32, 64, blocks, 2, option)
        self.linear = nn.Linear(64, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(self.standardize(x))))
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: Tensor = self.linear(x.mean((2, 3)))
        return logits


def _stage(in_width: int, width: int, blocks: int, stride: int, option: ShortcutOption) -> nn.Sequential:
    first = CifarBlock(in_width, width, stride, option)
    return nn.Sequential(first, *(CifarBlock(width, width, 1, option) for _ in range(blocks - 1)))
