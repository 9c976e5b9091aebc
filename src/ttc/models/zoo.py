"""The built-in architectures by name, each with the input statistics of its public checkpoints."""

from collections.abc import Callable
from functools import partial

from torch import nn

from ttc.errors import unknown
from ttc.models.cifar_resnet import CifarResNet
from ttc.models.resnet import BasicBlock, Bottleneck, ResNet, Stem
from ttc.models.standardize import CIFAR10_STATISTICS, CIFAR100_STATISTICS, IMAGENET_STATISTICS, InputStatistics
from ttc.models.wide_resnet import WideResNet

INPUT_STATISTICS: dict[str, InputStatistics | None] = {
    "none": None,  # raw [0, 1] pixels
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "cifar10": CIFAR10_STATISTICS,
    "cifar100": CIFAR100_STATISTICS,
    "imagenet": IMAGENET_STATISTICS,
}
"""The input statistics by name: the (mean, standard deviation) per channel with which images are standardized."""


def _statistics(name: str) -> InputStatistics | None:
    if name not in INPUT_STATISTICS:
        raise unknown("input statistics", name, INPUT_STATISTICS)
    return INPUT_STATISTICS[name]


def _cifar_name(num_classes: int) -> str:
    return "cifar100" if num_classes == 100 else "cifar10"


def _thin(depth: int, num_classes: int = 10, statistics: str | None = None) -> nn.Module:
    return CifarResNet(depth, num_classes, _statistics(statistics or _cifar_name(num_classes)))


def _wide(depth: int, widening: int, own: str, num_classes: int = 10, statistics: str | None = None) -> nn.Module:
    return WideResNet(depth, widening, num_classes, _statistics(statistics or own))


def _cifar_stem(
    block: type[BasicBlock] | type[Bottleneck],
    blocks: tuple[int, int, int, int],
    num_classes: int = 10,
    statistics: str | None = None,
) -> nn.Module:
    stem: Stem = "cifar"
    return ResNet(block, blocks, stem, num_classes, _statistics(statistics or _cifar_name(num_classes)))


def _imagenet_stem(
    block: type[BasicBlock] | type[Bottleneck],
    blocks: tuple[int, int, int, int],
    num_classes: int = 1000,
    statistics: str | None = None,
) -> nn.Module:
    return ResNet(block, blocks, "imagenet", num_classes, _statistics(statistics or "imagenet"))


MODELS: dict[str, Callable[..., nn.Module]] = {
    "resnet20": partial(_thin, 20),
    "resnet32": partial(_thin, 32),
    "resnet44": partial(_thin, 44),
    "resnet56": partial(_thin, 56),
    "resnet110": partial(_thin, 110),
    "wrn-28-10": partial(_wide, 28, 10, "none"),  # RobustBench's Standard takes raw pixels
    "wrn-40-2": partial(_wide, 40, 2, "half"),  # AugMix's checkpoint takes (x - 0.5) / 0.5
    "wrn-16-1": partial(_wide, 16, 1, "none"),
    "wrn-16-2": partial(_wide, 16, 2, "none"),
    "wrn-16-4": partial(_wide, 16, 4, "none"),
    "wrn-16-8": partial(_wide, 16, 8, "none"),
    "cifar-resnet18": partial(_cifar_stem, BasicBlock, (2, 2, 2, 2)),
    "cifar-resnet50": partial(_cifar_stem, Bottleneck, (3, 4, 6, 3)),
    "imagenet-resnet18": partial(_imagenet_stem, BasicBlock, (2, 2, 2, 2)),
    "imagenet-resnet50": partial(_imagenet_stem, Bottleneck, (3, 4, 6, 3)),
}
"""The built-in architectures by name.

Each value is a function of ``num_classes`` (default: that of its dataset) and ``statistics`` (a key of
``INPUT_STATISTICS``; default: those of its public checkpoints) that returns a model with random weights.
"""
