"""Wide residual networks (Zagoruyko & Komodakis, BMVC 2016), with the parameter names of RobustBench's checkpoints."""

import torch.nn.functional as F
from torch import Tensor, nn

from ttc.models.standardize import InputStatistics, standardization


class WideBlock(nn.Module):
    """Pre-activation block: norm, ReLU, convolution, twice; where the width changes, the shortcut is a projection."""

    def __init__(self, in_width: int, width: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(in_width)
        self.conv1 = nn.Conv2d(in_width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        # spelt as in public checkpoints
        self.convShortcut = None if in_width == width else nn.Conv2d(in_width, width, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        activated = F.relu(self.bn1(x))
        shortcut = x if self.convShortcut is None else self.convShortcut(activated)
        out: Tensor = shortcut + self.conv2(F.relu(self.bn2(self.conv1(activated))))
        return out


class WideStage(nn.Module):
    """Blocks of one width under the name ``layer``; only the first changes the shape."""

    def __init__(self, in_width: int, width: int, blocks: int, stride: int) -> None:
        super().__init__()
        first = WideBlock(in_width, width, stride)
        self.layer = nn.Sequential(first, *(WideBlock(width, width, 1) for _ in range(blocks - 1)))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)
        return out


class WideResNet(nn.Module):
    """WRN-depth-widening for 32x32 images in [0, 1]: (N, 3, 32, 32) -> logits (N, K)."""

    def __init__(
        self, depth: int = 28, widening: int = 10, num_classes: int = 10, statistics: InputStatistics | None = None
    ) -> None:
        super().__init__()
        blocks = (depth - 4) // 6
        self.standardize = standardization(statistics)
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.block1 = WideStage(16, 16 * widening, blocks, 1)
        self.block2 = WideStage(16 * widening, 32 * widening, blocks, 2)
        self.block3 = WideStage(32 * widening, 64 * widening, blocks, 2)
        self.bn1 = nn.BatchNorm2d(64 * widening)
        self.fc = nn.Linear(64 * widening, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(self.fc.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(self.standardize(x))
        x = F.relu(self.bn1(self.block3(self.block2(self.block1(x)))))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits
