import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ttc.errors import TTCError
from ttc.models import INPUT_STATISTICS, MODELS, build
from ttc.models.wide_resnet import WideResNet

StateDict = dict[str, Tensor]
SMALL = ["resnet20", "wrn-16-1", "cifar-resnet18"]


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
        ("wrn-28-10", 10, 36_479_194),
        ("wrn-40-2", 10, 2_243_546),
        ("cifar-resnet18", 10, 11_173_962),
        ("cifar-resnet50", 10, 23_520_842),
        ("imagenet-resnet18", 1000, 11_689_512),
        ("imagenet-resnet50", 1000, 25_557_032),
    ],
)
def test_parameter_counts_are_the_published_ones(name: str, num_classes: int, published: int) -> None:
    assert parameters(name, num_classes) == published


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("num_classes", [2, 10, 100])
def test_logits_of_images(name: str, num_classes: int) -> None:
    model = build(name, num_classes)
    assert not model.training
    with torch.no_grad():
        logits = model(torch.rand(2, 3, 32, 32))
    assert logits.shape == (2, num_classes)
    assert logits.isfinite().all()


def test_imagenet_stem_reduces_by_thirty_two() -> None:
    model = build("imagenet-resnet18", num_classes=7)
    seen: list[torch.Size] = []
    model.get_submodule("layer4").register_forward_hook(lambda _m, _i, out: seen.append(out.shape))
    with torch.no_grad():
        assert model(torch.rand(1, 3, 64, 64)).shape == (1, 7)
    assert seen == [torch.Size([1, 512, 2, 2])]


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


def test_wide_resnet_equals_a_transcription_of_its_definition() -> None:
    """The published forward pass, written out over the state dict with functional calls only."""
    torch.manual_seed(0)
    model = WideResNet(16, 2, 5).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean)  # type: ignore[arg-type]
            nn.init.uniform_(module.running_var, 0.5, 2)  # type: ignore[arg-type]
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    s: StateDict = model.state_dict()

    def norm(x: Tensor, at: str) -> Tensor:
        return F.batch_norm(
            x, s[f"{at}.running_mean"], s[f"{at}.running_var"], s[f"{at}.weight"], s[f"{at}.bias"], False, 0, 1e-5
        )

    x = torch.rand(3, 3, 32, 32)
    h = F.conv2d(x, s["conv1.weight"], padding=1)
    for block, first_stride in (("block1", 1), ("block2", 2), ("block3", 2)):
        for i in range(2):
            at = f"{block}.layer.{i}"
            stride = first_stride if i == 0 else 1
            a = norm(h, f"{at}.bn1").relu()
            y = F.conv2d(a, s[f"{at}.conv1.weight"], stride=stride, padding=1)
            y = F.conv2d(norm(y, f"{at}.bn2").relu(), s[f"{at}.conv2.weight"], padding=1)
            h = y + (F.conv2d(a, s[f"{at}.convShortcut.weight"], stride=stride) if i == 0 else h)
    pooled = F.avg_pool2d(norm(h, "bn1").relu(), 8).flatten(1)
    expected = F.linear(pooled, s["fc.weight"], s["fc.bias"])
    with torch.no_grad():
        torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize("name", ["imagenet-resnet50", "cifar-resnet18"])
def test_residual_networks_equal_a_transcription(name: str) -> None:
    torch.manual_seed(0)
    model = build(name, num_classes=4, statistics="none")
    s: StateDict = model.state_dict()
    large = name.startswith("imagenet")

    def norm(x: Tensor, at: str) -> Tensor:
        return F.batch_norm(
            x, s[f"{at}.running_mean"], s[f"{at}.running_var"], s[f"{at}.weight"], s[f"{at}.bias"], False, 0, 1e-5
        )

    x = torch.rand(2, 3, 32, 32)
    h = norm(F.conv2d(x, s["conv1.weight"], stride=2 if large else 1, padding=3 if large else 1), "bn1").relu()
    if large:
        h = F.max_pool2d(h, 3, 2, 1)
    for layer, count in zip((1, 2, 3, 4), (3, 4, 6, 3) if large else (2, 2, 2, 2), strict=True):
        for i in range(count):
            at, stride = f"layer{layer}.{i}", 2 if layer > 1 and i == 0 else 1
            if large:
                y = norm(F.conv2d(h, s[f"{at}.conv1.weight"]), f"{at}.bn1").relu()
                y = norm(F.conv2d(y, s[f"{at}.conv2.weight"], stride=stride, padding=1), f"{at}.bn2").relu()
                y = norm(F.conv2d(y, s[f"{at}.conv3.weight"]), f"{at}.bn3")
            else:
                y = norm(F.conv2d(h, s[f"{at}.conv1.weight"], stride=stride, padding=1), f"{at}.bn1").relu()
                y = norm(F.conv2d(y, s[f"{at}.conv2.weight"], padding=1), f"{at}.bn2")
            short = f"{at}.downsample" if large else f"{at}.shortcut"
            if f"{short}.0.weight" in s:
                h = norm(F.conv2d(h, s[f"{short}.0.weight"], stride=stride), f"{short}.1")
            h = (y + h).relu()
    head = "fc" if large else "linear"
    expected = F.linear(h.mean((2, 3)), s[f"{head}.weight"], s[f"{head}.bias"])
    with torch.no_grad():
        torch.testing.assert_close(model(x), expected)


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


def test_statistics_can_be_chosen() -> None:
    assert input_statistics(build("resnet20", statistics="none")) is None
    with pytest.raises(TTCError, match="unknown input statistics 'mnist': choose one of none, half, cifar10"):
        build("resnet20", statistics="mnist")


def test_unknown_names_and_counts() -> None:
    with pytest.raises(
        TTCError, match=r"unknown model 'resnet21' \(near: resnet.*choose embedded or one of resnet20.*timm:NAME"
    ):
        build("resnet21")
    with pytest.raises(TTCError, match="number of classes must be at least 1, got 0"):
        build("resnet20", num_classes=0)
