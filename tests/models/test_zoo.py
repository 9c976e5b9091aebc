"""The architectures: sizes, parameter names and input statistics."""

import pytest
import torch
from torch import nn

from ttc.models import INPUT_STATISTICS, MODELS


def parameters(name: str, num_classes: int) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in MODELS[name](num_classes=num_classes).parameters())


@pytest.mark.parametrize(
    ("name", "num_classes", "published"),
    [
        ("resnet20", 10, 269_722),
        ("resnet32", 10, 464_154),
        ("resnet44", 10, 658_586),
        ("resnet56", 10, 853_018),
        ("resnet110", 10, 1_727_962),
        ("resnet20-b", 10, 272_474),
        ("resnet56-b", 100, 861_620),
        ("wrn-28-10", 10, 36_479_194),
        ("wrn-40-2", 10, 2_243_546),
        ("cifar-resnet18", 10, 11_173_962),
        ("cifar-resnet50", 10, 23_520_842),
        ("imagenet-resnet18", 1000, 11_689_512),
        ("imagenet-resnet50", 1000, 25_557_032),
        ("imagenet-resnet50-original", 1000, 25_557_032),
    ],
)
def test_parameter_counts_are_the_published_ones(name: str, num_classes: int, published: int) -> None:
    assert parameters(name, num_classes) == published


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("resnet20", ["conv1.weight", "bn1.weight", "layer1.0.conv1.weight", "layer3.2.bn2.bias", "linear.weight"]),
        (
            "wrn-28-10",
            [
                "conv1.weight",
                "block1.layer.0.bn1.weight",
                "block1.layer.0.convShortcut.weight",
                "bn1.bias",
                "fc.weight",
            ],
        ),
        ("cifar-resnet18", ["layer2.0.shortcut.0.weight", "layer2.0.shortcut.1.running_mean", "linear.bias"]),
        (
            "imagenet-resnet50",
            ["layer1.0.downsample.0.weight", "layer4.2.conv3.weight", "layer2.0.bn3.bias", "fc.bias"],
        ),
    ],
)
def test_names_are_those_of_public_checkpoints(name: str, keys: list[str]) -> None:
    with torch.device("meta"):
        state = MODELS[name]().state_dict()
    assert set(keys) <= set(state)
    assert not any("standardize" in key for key in state)


def input_statistics(model: nn.Module) -> tuple[list[float], list[float]] | None:
    layer = model.get_submodule("standardize")
    if isinstance(layer, nn.Identity):
        return None
    buffers = dict(layer.named_buffers())
    return buffers["mean"].flatten().tolist(), buffers["std"].flatten().tolist()


@pytest.mark.parametrize(
    ("name", "num_classes", "statistics"),
    [
        ("resnet20", 10, "cifar10"),
        ("resnet20", 100, "cifar100"),
        ("wrn-28-10", 10, "none"),
        ("wrn-40-2", 10, "half"),
        ("cifar-resnet18", 100, "cifar100"),
        ("imagenet-resnet18", 1000, "imagenet"),
        ("imagenet-resnet50-original", 1000, "caffe"),
        ("resnet20-b", 10, "cifar10-b"),
        ("resnet20-b", 100, "cifar100-b"),
    ],
)
def test_each_name_brings_its_input_statistics(name: str, num_classes: int, statistics: str) -> None:
    with torch.device("cpu"):
        found = input_statistics(MODELS[name](num_classes=num_classes))
    expected = INPUT_STATISTICS[statistics]
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert found[0] == pytest.approx(list(expected[0]))
        assert found[1] == pytest.approx(list(expected[1]))


@pytest.mark.parametrize("name", MODELS)
def test_every_architecture_states_its_input_and_published_accuracies(name: str) -> None:
    architecture = MODELS[name]
    small = not name.startswith("imagenet")
    assert (architecture.side, architecture.resize) == ((32, 32) if small else (224, 256))
    assert architecture.expects().startswith(f"RGB in [0, 1], {architecture.side} x {architecture.side}, ")
    assert set(architecture.accuracies) <= ({"cifar10", "cifar100"} if small else {"imagenet"})
    assert all(0.6 < accuracy < 1 for accuracy in architecture.accuracies.values())
    with torch.device("meta"):
        model = architecture()
    assert [getattr(model, name) for name in ("side", "resize")] == [architecture.side, architecture.resize]


def test_variants_say_what_distinguishes_them() -> None:
    assert MODELS["imagenet-resnet50-original"].expects() == (
        "RGB in [0, 1], 224 x 224, standardized with mean (0.485, 0.458, 0.4076), deviation (0.003922, 0.003922, "
        "0.003922); the first 1x1 convolutions have the stride and BatchNorm's eps is 0.001, as in Caffe and Keras"
    )
    assert MODELS["wrn-28-10"].expects() == "RGB in [0, 1], 32 x 32, not standardized"
    assert "mean (0.507, 0.4865, 0.4409)" in MODELS["resnet56-b"].expects(100)
