"""Compiled networks: the same outputs, and one sentence where there is no compiler."""

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.core import Classifier
from ttc.fast.compile import CompiledNetwork, SplitNorm, _with_split_norms
from ttc.models.cifar_resnet import CifarResNet
from ttc.nn import BatchStatisticsNorm, copy_with_trainable_norms


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    )


NEEDS_COMPILER = pytest.mark.skipif(
    not any(map(shutil.which, ("c++", "g++", "clang++", "cl"))), reason="no C++ compiler is installed"
)


@NEEDS_COMPILER
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of what its compiler uses
@pytest.mark.parametrize("method", ["norm", pytest.param("ttc", marks=pytest.mark.slow)])
def test_compiled_predictions_are_alike(method: str) -> None:
    network = small()
    compiled, plain = ttc.adapt(network, method, compile=True), ttc.adapt(network, method)
    for batch in torch.rand(3, 6, 3, 8, 8):
        torch.testing.assert_close(compiled(batch), plain(batch), atol=1e-4, rtol=1e-4)
    with pytest.raises(ttc.TTCError, match="got shape"):
        compiled(torch.rand(6, 2, 8, 8))


def fail_to_compile(network: nn.Module, **options: Any) -> Callable[[Tensor], Tensor]:
    def run(x: Tensor) -> Tensor:
        raise RuntimeError("no C++ compiler was found\nand a trace")

    return run


def test_without_a_compiler_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", fail_to_compile)
    adapter, batch = ttc.adapt(CifarResNet(20), "tent", compile=True), torch.rand(4, 3, 32, 32)
    adapter(batch)
    before = adapter.state_dict()
    message = r"cannot be compiled here, leave out compile=True: no C\+\+ compiler was found$"
    with pytest.raises(ttc.TTCError, match=message):
        adapter(batch)
    after = adapter.state_dict()
    assert all(torch.equal(after["model"][name], value) for name, value in before["model"].items())


def test_a_shape_that_comes_once_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", fail_to_compile)
    network = CompiledNetwork(small().eval())
    for size in (1, 2, 3):
        network(torch.rand(size, 3, 8, 8))
    with torch.no_grad():
        network(torch.rand(3, 3, 8, 8))  # another pass to compile, that without gradients
    with pytest.raises(ttc.TTCError, match="cannot be compiled here"):
        network(torch.rand(3, 3, 8, 8))


@pytest.mark.parametrize("compiling", [False, True])
def test_split_norms_treat_batches_apart(compiling: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: compiling)
    torch.manual_seed(0)
    network = copy_with_trainable_norms(Classifier(small().double())).network
    split = _with_split_norms(network, 2)
    one, two = torch.rand(2, 5, 3, 8, 8, dtype=torch.float64)
    expected = torch.cat([network(one), network(two * 0.3)])
    torch.testing.assert_close(split(torch.cat([one, two * 0.3])), expected)
    assert any(isinstance(module, SplitNorm) for module in split.modules())
    assert sum(isinstance(module, BatchStatisticsNorm) for module in network.modules()) == 1
    assert {id(parameter) for parameter in split.parameters()} == {id(parameter) for parameter in network.parameters()}
