"""Bound programs: in-place and fused operations give the outputs and gradients of the network."""

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ttc.core import Classifier
from ttc.fast import low_memory
from ttc.fast.graph import capture
from ttc.fast.low_memory import relu_
from ttc.fast.rewrites import BoundProgram, bind
from ttc.models.cifar_resnet import CifarResNet
from ttc.models.wide_resnet import WideResNet
from ttc.nn import BatchStatisticsNorm, PooledNorm, copy_with_trainable_norms
from ttc.nn.normalization import StatisticsNorm


def bound(network: nn.Module, batches: int = 1) -> BoundProgram:
    program = capture(network)
    assert program is not None
    return bind(program, network, batches)


def gradients(network: nn.Module, output: Tensor) -> list[Tensor]:
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    return list(torch.autograd.grad(output.square().sum(), parameters))


class PaddedConv(nn.Conv2d):
    """Pads by itself, as models ported from TensorFlow do."""

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(F.pad(x, (0, 1, 0, 1)), self.weight, self.bias, self.stride, groups=self.groups)


class NamedConv(nn.Conv2d):
    """Names all arguments of the function."""

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(input=x, weight=self.weight, bias=self.bias)


class MobileBlock(nn.Module):
    """An inverted residual with ReLU6, the layer of mobile networks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU6())
        self.expand, self.first = PaddedConv(8, 16, 2), nn.BatchNorm2d(16)
        self.depthwise, self.second = PaddedConv(16, 16, 2, groups=16), nn.BatchNorm2d(16)
        self.project, self.third = NamedConv(16, 8, 1), nn.BatchNorm2d(8)
        self.classify = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = F.relu6(self.first(self.expand(x)) * 4)
        y = F.relu6(self.second(self.depthwise(y)))
        x = F.relu6(x + self.third(self.project(y)))
        scores: Tensor = self.classify(x.mean((2, 3)))
        return scores


@pytest.mark.parametrize("make", [lambda: CifarResNet(20), lambda: WideResNet(16, 4), MobileBlock])
def test_outputs_and_gradients_are_those_of_the_network(make: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(low_memory, "LARGE", 1 << 12)  # so that some layers save less and some do not
    torch.manual_seed(0)
    assert callable(make)
    network = copy_with_trainable_norms(Classifier(make().double())).network
    x = torch.rand(6, 3, 32, 32, dtype=torch.float64)
    fast, plain = bound(network)(x), network(x)
    torch.testing.assert_close(fast, plain)
    for one, two in zip(gradients(network, fast), gradients(network, plain), strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize("make", [lambda: CifarResNet(20), MobileBlock])
def test_pools_predict_and_learn_as_in_the_network(
    make: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(low_memory, "LARGE", 1 << 12)  # so that some layers are one step with their ReLU
    torch.manual_seed(0)
    network = copy_with_trainable_norms(Classifier(make()), PooledNorm).network
    other, x = copy.deepcopy(network), torch.rand(6, 3, 32, 32)
    fast, plain = bound(network)(x), other(x)
    assert torch.equal(fast, plain)
    for one, two in zip(gradients(network, fast), gradients(other, plain), strict=True):
        assert torch.equal(one, two)
    for one, two in zip(network.buffers(), other.buffers(), strict=True):
        assert torch.equal(one, two)


def test_awkward_operations_keep_outputs_and_gradients(captured: nn.Module) -> None:
    network = copy_with_trainable_norms(Classifier(captured.double())).network
    x = torch.rand(8, 3, 8, 8, dtype=torch.float64)
    fast, plain = bound(network)(x), network(x)
    torch.testing.assert_close(fast, plain)
    for one, two in zip(gradients(network, fast), gradients(network, plain), strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize("norm", [BatchStatisticsNorm, PooledNorm])
def test_norm_and_relu_are_one_step_and_sums_are_in_place(norm: type[StatisticsNorm]) -> None:
    network = copy_with_trainable_norms(Classifier(CifarResNet(20)), norm).network
    program = capture(network)
    assert program is not None
    functions = [step.function for step in bind(program, network).steps]
    names = [getattr(getattr(function, "func", function), "__name__", "") for function in functions]
    assert len(names) == len(program.nodes) - 10  # the ReLU of the stem and of nine blocks
    assert names.count("_add_") == 9
    assert names.count(relu_.__name__) == 9


@pytest.mark.parametrize("norm", [BatchStatisticsNorm, PooledNorm])
def test_a_mobile_network_saves_little_for_the_backward_pass(
    norm: type[StatisticsNorm], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(low_memory, "LARGE", 1)
    network = copy_with_trainable_norms(Classifier(MobileBlock()), norm).network
    x = torch.rand(8, 3, 16, 16)

    def saved(run: Callable[[Tensor], object]) -> int:
        kept: dict[int, int] = {}

        def save(tensor: Tensor) -> Tensor:
            kept[tensor.data_ptr()] = tensor.nbytes
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
            run(x)
        return sum(kept.values())

    program = bound(network)
    assert saved(lambda batch: program(batch)) < 0.7 * saved(network)


def test_layers_with_hooks_are_not_fused() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    seen: list[Tensor] = []
    network[1].register_forward_hook(lambda module, inputs, output: seen.append(output))
    x = torch.rand(2, 3, 8, 8)
    assert torch.equal(bound(network)(x), network(x))
    assert bool((seen[0] < 0).any())  # nothing was written over what the hook saw
    assert torch.equal(seen[0], seen[1])


def test_several_batches_keep_their_own_statistics() -> None:
    torch.manual_seed(0)
    network = copy_with_trainable_norms(Classifier(CifarResNet(20).double())).network
    one, two = torch.rand(2, 5, 3, 32, 32, dtype=torch.float64)
    together = bound(network, batches=2)(torch.cat([one, two * 0.3]))
    torch.testing.assert_close(together, torch.cat([network(one), network(two * 0.3)]))


def test_values_are_freed_after_their_last_use() -> None:
    program = bound(CifarResNet(20).eval())
    freed = [slot for step in program.steps for slot in step.dead]
    assert len(freed) == len(set(freed))
    assert set(freed) == {0, *(step.output for step in program.steps)} - {program.output}
