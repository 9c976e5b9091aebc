"""Captured graphs: what can be followed is, what cannot is left alone, and nothing of the network is touched."""

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

from ttc.fast.graph import capture, is_leaf, shallow_copy
from ttc.fast.rewrites import bind
from ttc.models.building import build
from ttc.models.cifar_resnet import CifarResNet
from ttc.models.wide_resnet import WideResNet


def conv_norm_relu() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()


def test_a_captured_network_computes_the_same(captured: nn.Module) -> None:
    program, x = capture(captured), torch.rand(8, 3, 8, 8)
    assert program is not None
    torch.testing.assert_close(bind(program, captured)(x), captured(x))


def test_what_cannot_be_followed_has_no_graph(not_captured: nn.Module) -> None:
    before = {key: id(value) for key, value in vars(not_captured).items()}
    assert capture(not_captured) is None
    assert before == {key: id(value) for key, value in vars(not_captured).items()}
    assert not_captured.history == []


@pytest.mark.parametrize("network", [CifarResNet(20), WideResNet(16, 4), build("imagenet-resnet50")], ids=type)
def test_the_zoo_is_captured(network: nn.Module) -> None:
    state = copy.deepcopy(network.state_dict())
    program, x = capture(network.eval()), torch.rand(2, 3, 32, 32)
    assert program is not None
    assert torch.equal(bind(program, network)(x), network(x))
    assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())


def test_no_layer_runs_while_a_graph_is_captured() -> None:
    class Fails(nn.ReLU):
        def forward(self, x: Tensor) -> Tensor:
            assert isinstance(x, Tensor)
            assert type(x) is Tensor
            return super().forward(x)

    network = conv_norm_relu()
    network[2].register_forward_hook(lambda *_: pytest.fail("a layer was called"))
    assert capture(network) is not None
    assert capture(nn.Sequential(network, Fails())) is None  # a forward of its own, on what is no tensor


def test_modules_with_hooks_are_called_as_a_whole() -> None:
    network = nn.Sequential(conv_norm_relu(), nn.Flatten())
    network[0].register_forward_hook(lambda module, inputs, output: output * 2)
    program, x = capture(network), torch.rand(2, 3, 8, 8)
    assert program is not None
    assert [node.target for node in program.nodes] == ["0", "1"]
    assert torch.equal(bind(program, network)(x), network(x))


def test_a_network_that_is_one_layer_has_no_graph() -> None:
    assert is_leaf(nn.Linear(2, 2))
    assert capture(nn.Linear(2, 2)) is None


def test_hooks_for_all_modules_stop_it() -> None:
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert capture(conv_norm_relu()) is None
    finally:
        handle.remove()


def test_shared_modules_are_recorded_where_they_are_called() -> None:
    norm = nn.BatchNorm2d(3)
    network = nn.Sequential(norm, nn.Conv2d(3, 3, 1), norm).eval()
    program = capture(network)
    assert program is not None
    assert [node.target for node in program.nodes] == ["0", "1", "2"]


def test_programs_are_plain_values() -> None:
    program = capture(CifarResNet(20).eval())
    assert program is not None
    assert copy.deepcopy(program) is program
    assert pickle.loads(pickle.dumps(program)) == program


def test_a_shallow_copy_shares_tensors() -> None:
    network = conv_norm_relu()
    copied = shallow_copy(network, _modules={})
    assert type(copied) is nn.Sequential
    assert len(list(copied.children())) == 0
    assert len(list(network.children())) == 3
