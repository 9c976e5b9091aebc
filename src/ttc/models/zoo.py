"""The built-in architectures by name, each with what its public checkpoints expect and how accurate they are."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from torch import nn

from ttc.errors import unknown
from ttc.models.cifar_resnet import CifarResNet
from ttc.models.resnet import BasicBlock, Bottleneck, OriginalBottleneck, ResNet, Stem
from ttc.models.standardize import CIFAR10_STATISTICS, CIFAR100_STATISTICS, IMAGENET_STATISTICS, InputStatistics
from ttc.models.wide_resnet import WideResNet

INPUT_STATISTICS: dict[str, InputStatistics | None] = {
    "none": None,  # raw [0, 1] pixels
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "cifar10": CIFAR10_STATISTICS,
    "cifar100": CIFAR100_STATISTICS,
    "imagenet": IMAGENET_STATISTICS,
    "cifar10-b": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),  # of public ResNets with option-B shortcuts
    "cifar100-b": ((0.5070, 0.4865, 0.4409), (0.2673, 0.2564, 0.2761)),
    "caffe": ((123.68 / 255, 116.779 / 255, 103.939 / 255), (1 / 255, 1 / 255, 1 / 255)),  # pixels 0 … 255 less a mean
}
"""The input statistics by name: the (mean, standard deviation) per channel with which images are standardized."""


@dataclass(frozen=True)
class Architecture:
    """A built-in architecture; calling it returns a model with random weights.

    Args:
        make: Builds the network from the number of classes and the input statistics.
        num_classes: The number of classes of the dataset it was published for.
        statistics: The key of ``INPUT_STATISTICS`` that its public checkpoints of a number of classes need.
        side: The height and width of its images in pixels.
        resize: The length of the shorter side before the centre crop.
        accuracies: The published clean accuracies of public checkpoints by dataset, as fractions in [0, 1].
        variant: What distinguishes it from an architecture with the same parameters.
    """

    make: Callable[[int, InputStatistics | None], nn.Module] = field(repr=False)
    num_classes: int
    statistics: Callable[[int], str] = field(repr=False)
    side: int = 32
    resize: int = 32
    accuracies: Mapping[str, float] = field(default_factory=dict)
    variant: str = ""

    def __call__(self, num_classes: int | None = None, statistics: str | None = None) -> nn.Module:
        """Build a model with random weights.

        Args:
            num_classes: The number of classes; by default that of its dataset.
            statistics: A key of ``INPUT_STATISTICS``; by default those of its public checkpoints.

        Returns:
            The model; its attributes ``side`` and ``resize`` state the image size it expects.

        Raises:
            TTCError: The input statistics are unknown.
        """
        classes = num_classes or self.num_classes
        name = statistics or self.statistics(classes)
        if name not in INPUT_STATISTICS:
            raise unknown("input statistics", name, INPUT_STATISTICS)
        model = self.make(classes, INPUT_STATISTICS[name])
        model.side, model.resize = self.side, self.resize  # type: ignore[assignment]
        return model

    def expects(self, num_classes: int | None = None) -> str:
        """Describe the input of public checkpoints in one line: channel order, scale, statistics, size.

        >>> MODELS["resnet20"].expects()
        'RGB in [0, 1], 32 x 32, standardized with mean (0.4914, 0.4822, 0.4465), deviation (0.247, 0.2435, 0.2616)'
        """
        chosen = INPUT_STATISTICS[self.statistics(num_classes or self.num_classes)]
        images = f"RGB in [0, 1], {self.side} x {self.side}"
        if chosen is None:
            return f"{images}, not standardized"
        mean, deviation = (", ".join(f"{value:.4g}" for value in values) for values in chosen)
        note = f"; {self.variant}" if self.variant else ""
        return f"{images}, standardized with mean ({mean}), deviation ({deviation}){note}"


def _cifar_statistics(num_classes: int) -> str:
    return "cifar100" if num_classes == 100 else "cifar10"


def _three_stages(depth: int, **accuracies: float) -> Architecture:
    return Architecture(partial(CifarResNet, depth), 10, _cifar_statistics, accuracies=accuracies)


def _three_stages_b(depth: int, **accuracies: float) -> Architecture:
    make = partial(CifarResNet, depth, option="B")
    return Architecture(make, 10, lambda classes: f"{_cifar_statistics(classes)}-b", accuracies=accuracies)


def _wide(depth: int, widening: int, statistics: str, **accuracies: float) -> Architecture:
    return Architecture(partial(WideResNet, depth, widening), 10, lambda classes: statistics, accuracies=accuracies)


def _four_stages(
    block: type[BasicBlock] | type[Bottleneck],
    blocks: tuple[int, int, int, int],
    stem: Stem,
    accuracies: Mapping[str, float],
    statistics: str = "imagenet",
    eps: float = 1e-5,
    variant: str = "",
) -> Architecture:
    def make(num_classes: int, chosen: InputStatistics | None) -> nn.Module:
        return ResNet(block, blocks, stem, num_classes, chosen, eps)

    if stem == "cifar":
        return Architecture(make, 10, _cifar_statistics, accuracies=accuracies, variant=variant)
    return Architecture(make, 1000, lambda classes: statistics, 224, 256, accuracies, variant)


MODELS: dict[str, Architecture] = {
    "resnet20": _three_stages(20, cifar10=0.9173),
    "resnet32": _three_stages(32, cifar10=0.9263),
    "resnet44": _three_stages(44, cifar10=0.9310),
    "resnet56": _three_stages(56, cifar10=0.9339),
    "resnet110": _three_stages(110, cifar10=0.9368),
    "resnet20-b": _three_stages_b(20, cifar10=0.9260, cifar100=0.6883),
    "resnet32-b": _three_stages_b(32, cifar10=0.9353, cifar100=0.7016),
    "resnet44-b": _three_stages_b(44, cifar10=0.9401, cifar100=0.7163),
    "resnet56-b": _three_stages_b(56, cifar10=0.9437, cifar100=0.7263),
    "wrn-28-10": _wide(28, 10, "none", cifar10=0.9478),  # RobustBench's Standard takes raw pixels
    "wrn-40-2": _wide(40, 2, "half", cifar10=0.9508),  # AugMix's checkpoint takes (x - 0.5) / 0.5
    "wrn-16-1": _wide(16, 1, "none"),
    "wrn-16-2": _wide(16, 2, "none"),
    "wrn-16-4": _wide(16, 4, "none"),
    "wrn-16-8": _wide(16, 8, "none"),
    "cifar-resnet18": _four_stages(BasicBlock, (2, 2, 2, 2), "cifar", {"cifar10": 0.9302, "cifar100": 0.7561}),
    "cifar-resnet50": _four_stages(Bottleneck, (3, 4, 6, 3), "cifar", {"cifar10": 0.9362, "cifar100": 0.7739}),
    "imagenet-resnet18": _four_stages(BasicBlock, (2, 2, 2, 2), "imagenet", {"imagenet": 0.6976}),
    "imagenet-resnet50": _four_stages(
        Bottleneck,
        (3, 4, 6, 3),
        "imagenet",
        {"imagenet": 0.7613},
        variant="the 3x3 convolutions have the stride, as in torchvision and timm",
    ),
    "imagenet-resnet50-original": _four_stages(
        OriginalBottleneck,
        (3, 4, 6, 3),
        "imagenet",
        {"imagenet": 0.749},
        statistics="caffe",
        eps=1e-3,
        variant="the first 1x1 convolutions have the stride and BatchNorm's eps is 0.001, as in Caffe and Keras",
    ),
}
"""The built-in architectures by name.

Each value is an :class:`Architecture`, a function of ``num_classes`` (default: that of its dataset) and ``statistics``
(a key of ``INPUT_STATISTICS``; default: those of its public checkpoints) that returns a model with random weights.
Names ending in ``-b`` have 1x1 convolutions with BatchNorm in the shortcuts (option B of He et al.).
"""
