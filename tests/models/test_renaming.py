"""Checkpoints in the naming schemes of public code, each written out from the names of our own models."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ttc.errors import TTCError
from ttc.models import build, load_checkpoint
from ttc.models.renaming import PREFIXES, RENAMINGS, common_name, rename_keys, shared_prefix
from ttc.models.weight_files import matching_architectures

StateDict = dict[str, Tensor]
BOTTLENECK = re.compile(r"layer(\d)\.(\d)\.(?:(conv|bn)(\d)|(?:downsample|shortcut)\.(\d))\.(\w+)")


def caffe(key: str) -> str:
    if found := BOTTLENECK.fullmatch(key):
        stage, block, kind, number, shortcut, leaf = found.groups()
        place = f"{int(stage) + 1}{'abcdef'[int(block)]}"
        branch = "1" if shortcut else f"2{'abc'[int(number) - 1]}"
        layer = {"conv": "res", "bn": "bn"}[kind] if kind else ("res", "bn")[int(shortcut)]
        return f"{layer}{place}_branch{branch}.{leaf}"
    return key.replace("bn1.", "bn_conv1.").replace("fc.", "fc1000.")


def keras(key: str) -> str:
    if found := BOTTLENECK.fullmatch(key):
        stage, block, kind, number, shortcut, leaf = found.groups()
        layer = f"{number}_{kind}" if kind else f"0_{('conv', 'bn')[int(shortcut)]}"
        return f"conv{int(stage) + 1}_block{int(block) + 1}_{layer}.{leaf}"
    return key.replace("conv1.", "conv1_conv.").replace("bn1.", "conv1_bn.").replace("fc.", "predictions.")


def transformers(key: str) -> str:
    names = {"conv": "convolution", "bn": "normalization"}
    if found := BOTTLENECK.fullmatch(key):
        stage, block, kind, number, shortcut, leaf = found.groups()
        layer = f"layer.{int(number) - 1}.{names[kind]}" if kind else f"shortcut.{list(names.values())[int(shortcut)]}"
        return f"resnet.encoder.stages.{int(stage) - 1}.layers.{block}.{layer}.{leaf}"
    head = key.replace("fc.", "classifier.1.")
    return re.sub(r"^(conv|bn)1", lambda m: f"resnet.embedder.embedder.{names[m[1]]}", head)


def sequential(key: str) -> str:
    if found := BOTTLENECK.fullmatch(key):
        stage, block, kind, number, shortcut, leaf = found.groups()
        place = 3 * (int(number) - 1) + (kind == "bn") if kind else None
        layer = f"shortcut.{shortcut}" if place is None else f"residual_function.{place}"
        return f"conv{int(stage) + 1}_x.{block}.{layer}.{leaf}"
    return key.replace("bn1.", "conv1.1.").replace("conv1.w", "conv1.0.w").replace("linear.", "fc.")


def replaced(*pairs: tuple[str, str]) -> Callable[[str], str]:
    def rename(key: str) -> str:
        for old, new in pairs:
            key = re.sub(old, new, key)
        return key

    return rename


CASES = [
    ("caffe", "imagenet-resnet50", caffe),
    ("caffe", "imagenet-resnet50-original", caffe),
    ("keras", "imagenet-resnet50-original", keras),
    ("transformers", "imagenet-resnet50", transformers),
    ("transformers", "imagenet-resnet18", transformers),
    ("sequential", "cifar-resnet18", sequential),
    ("shortcut", "resnet20-b", replaced(("shortcut", "downsample"), ("linear", "fc"))),
    ("shortcut", "cifar-resnet18", replaced(("shortcut.0", "skip.conv"), ("shortcut.1", "skip.bn"))),
    ("shortcut", "imagenet-resnet18", replaced(("downsample", "shortcut"))),
    ("shortcut", "wrn-16-1", replaced(("convShortcut", "shortcut"))),
    ("head", "resnet20", replaced(("linear", "fc"))),
    ("head", "wrn-16-1", replaced(("fc", "linear"))),
    ("head", "imagenet-resnet18", replaced(("fc", "last_linear"))),
    ("head", "imagenet-resnet18", replaced(("fc", "head.fc"))),
    ("head", "resnet20-b", replaced(("linear", "classifier"))),
]


def randomized(name: str) -> nn.Module:
    """Make a model whose BatchNorm differs from layer to layer, so that no two can be mistaken for each other."""
    model = build(name, num_classes=7)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean)  # type: ignore[arg-type]
            nn.init.uniform_(module.running_var, 0.5, 2)  # type: ignore[arg-type]
            nn.init.uniform_(module.weight, 0.5, 1)
    return model


@pytest.mark.parametrize(("scheme", "name", "rename"), CASES)
def test_every_scheme_loads(tmp_path: Path, scheme: str, name: str, rename: Callable[[str], str]) -> None:
    torch.manual_seed(3)
    model = randomized(name)
    foreign = {rename(key): value for key, value in model.state_dict().items()}
    assert len(foreign) == len(model.state_dict())
    assert foreign.keys() != model.state_dict().keys()
    torch.save({"state_dict": {f"module.{key}": value for key, value in foreign.items()}}, tmp_path / "w.pt")
    loaded = build(name, checkpoint=tmp_path / "w.pt")
    own = model.state_dict()
    assert all(torch.equal(value, own[key]) for key, value in loaded.state_dict().items())
    assert name in matching_architectures(foreign)


def test_every_scheme_of_the_table_has_a_case() -> None:
    assert {renaming.scheme for renaming in RENAMINGS} == {scheme for scheme, _, _ in CASES}
    assert len({renaming.pattern for renaming in RENAMINGS}) == len(RENAMINGS)


def test_every_renaming_is_used_by_a_case() -> None:
    keys = []
    for _, name, rename in CASES:
        with torch.device("meta"):
            keys += [rename(key) for key in build(name).state_dict()]
    for renaming in RENAMINGS:
        assert any(re.search(renaming.pattern, key) for key in keys), renaming.pattern


@pytest.mark.parametrize("prefix", PREFIXES)
def test_every_prefix_is_removed(tmp_path: Path, prefix: str) -> None:
    state = build("resnet20").state_dict()
    torch.save({prefix + key: value for key, value in state.items()}, tmp_path / "w.pt")
    loaded = build("resnet20", checkpoint=tmp_path / "w.pt").state_dict()
    assert all(torch.equal(loaded[key], state[key]) for key in state)
    assert shared_prefix([f"{prefix}a", "b"]) == ""


def test_biases_of_convolutions_move_into_the_means(tmp_path: Path) -> None:
    """As Caffe and Keras have them: the outputs equal those of a network that has the biases."""
    torch.manual_seed(4)
    model = randomized("imagenet-resnet50-original").eval()
    state = dict(model.state_dict())
    expected = {}
    for key, value in model.state_dict().items():
        if value.ndim == 4:
            state[key.removesuffix("weight") + "bias"] = torch.randn(len(value))
    for key, value in model.state_dict().items():
        conv = key.replace("bn", "conv").replace("downsample.1", "downsample.0").replace("running_mean", "bias")
        expected[key] = value - state[conv] if key.endswith("running_mean") else value
    torch.save({caffe(key): value for key, value in state.items()}, tmp_path / "w.pt")
    loaded = build("imagenet-resnet50-original", checkpoint=tmp_path / "w.pt")
    for key, value in loaded.state_dict().items():
        torch.testing.assert_close(value, expected[key], rtol=0, atol=0)


def test_a_bias_without_batchnorm_is_not_lost() -> None:
    state = {"conv1.bias": torch.ones(4), "fc.bias": torch.ones(2)}
    assert set(rename_keys(state, ["conv1.weight", "linear.bias"])) == {"conv1.bias", "linear.bias"}
    with_shape = {"conv1.bias": torch.ones(4), "bn1.running_mean": torch.ones(5)}
    assert set(rename_keys(with_shape, ["bn1.running_mean"])) == {"conv1.bias", "bn1.running_mean"}


def test_two_keys_for_one_name_are_not_guessed(tmp_path: Path) -> None:
    model = nn.ModuleDict({"fc": nn.Linear(2, 2), "linear": nn.Linear(2, 2)})
    state = {"head.weight": torch.zeros(2, 2), "fc.weight": torch.ones(2, 2)}
    assert rename_keys(state, model.state_dict()) == state
    torch.save({"classifier.weight": torch.zeros(2, 2), "classifier.bias": torch.zeros(2)}, tmp_path / "w.pt")
    with pytest.raises(TTCError, match=r"4 missing \(fc.weight, .*2 unexpected \(classifier.weight, classifier.bias\)"):
        load_checkpoint(model, tmp_path / "w.pt")


def test_variants_with_the_same_parameters_are_both_named(tmp_path: Path) -> None:
    with torch.device("meta"):
        state = dict(build("imagenet-resnet50").state_dict())
    assert matching_architectures(state) == ["imagenet-resnet50", "imagenet-resnet50-original"]
    torch.save(build("imagenet-resnet50", num_classes=2).state_dict(), tmp_path / "w.pt")
    with pytest.raises(TTCError) as caught:
        build("imagenet-resnet18", checkpoint=tmp_path / "w.pt")
    assert "it fits imagenet-resnet50 (the 3x3 convolutions have the stride" in str(caught.value)
    assert "imagenet-resnet50-original (the first 1x1 convolutions" in str(caught.value)
    assert "the file cannot tell which, so measure both with ttc inspect --data" in str(caught.value)


def test_common_names_are_stable() -> None:
    """A common name is its own common name, so that a file which uses it needs no scheme."""
    for name in ("resnet20-b", "imagenet-resnet50", "wrn-16-1", "cifar-resnet18"):
        with torch.device("meta"):
            for key in build(name).state_dict():
                assert common_name(common_name(key)) == common_name(key)
