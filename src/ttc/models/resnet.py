"""Four-stage residual networks (He et al., CVPR 2016) for ImageNet, named as in torchvision, and for CIFAR."""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from ttc.models.standardize import InputStatistics, standardization

Stem = Literal["imagenet", "cifar"]
SHORTCUT = {"imagenet": "downsample", "cifar": "shortcut"}  # its name in public checkpoints of each kind
HEAD = {"imagenet": "fc", "cifar": "linear"}


class _Residual(nn.Module):
    """A residual block with a projection shortcut where the shape changes; subclasses define the residual branch."""

    expansion = 1

    def __init__(self, in_width: int, width: int, stride: int, stem: Stem) -> None:
        super().__init__()
        self.shortcut_name = SHORTCUT[stem] if stride != 1 or in_width != width * self.expansion else None
        self.arrange(in_width, width, stride)
        if self.shortcut_name:
            wide = width * self.expansion
            conv = nn.Conv2d(in_width, wide, 1, stride, bias=False)
            self.add_module(self.shortcut_name, nn.Sequential(conv, nn.BatchNorm2d(wide)))

    def arrange(self, in_width: int, width: int, stride: int) -> None:
        raise NotImplementedError

    def residual(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        shortcut = self.get_submodule(self.shortcut_name)(x) if self.shortcut_name else x
        return F.relu(self.residual(x) + shortcut)


class BasicBlock(_Residual):
    """Two 3x3 convolutions."""

    def arrange(self, in_width: int, width: int, stride: int) -> None:
        self.conv1 = nn.Conv2d(in_width, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def residual(self, x: Tensor) -> Tensor:
        out: Tensor = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return out


class Bottleneck(_Residual):
    """1x1, 3x3 (which has the stride, as in torchvision), 1x1 to four times the width."""

    expansion = 4
    strides_first = False  # whether the first 1x1 convolution has the stride

    def arrange(self, in_width: int, width: int, stride: int) -> None:
        first, second = (stride, 1) if self.strides_first else (1, stride)
        self.conv1 = nn.Conv2d(in_width, width, 1, first, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, second, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, width * 4, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(width * 4)

    def residual(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        widened: Tensor = self.bn3(self.conv3(out))
        return widened


class OriginalBottleneck(Bottleneck):
    """The bottleneck as published: its first 1x1 convolution has the stride; same parameters, other outputs."""

    strides_first = True


class ResNet(nn.Module):
    """ResNet-18/34 (basic) or -50/101 (bottleneck) for images in [0, 1]: (N, 3, H, W) -> logits (N, K)."""

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        blocks: tuple[int, int, int, int],
        stem: Stem,
        num_classes: int,
        statistics: InputStatistics | None,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.head_name = HEAD[stem]
        self.standardize = standardization(statistics)
        large = stem == "imagenet"
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False) if large else nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.pool = nn.MaxPool2d(3, 2, 1) if large else nn.Identity()
        in_width = 64
        for stage, count in enumerate(blocks):
            layers = nn.Sequential()
            for index in range(count):
                layers.append(block(in_width, 64 << stage, 2 if stage and not index else 1, stem))
                in_width = (64 << stage) * block.expansion
            self.add_module(f"layer{stage + 1}", layers)
        self.add_module(self.head_name, nn.Linear(in_width, num_classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.BatchNorm2d):
                module.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.bn1(self.conv1(self.standardize(x)))))
        for stage in range(1, 5):
            x = self.get_submodule(f"layer{stage}")(x)
        logits: Tensor = self.get_submodule(self.head_name)(x.mean((2, 3)))
        return logits
