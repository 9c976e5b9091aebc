"""Channels last is used where a network allows it."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ttc.fast.graph import capture
from ttc.fast.layout import allows_channels_last, set_layout_
from ttc.models.cifar_resnet import CifarResNet

from .conftest import Body, flatten_with_view, view_and_write


def judge(network: nn.Module) -> bool:
    program = capture(network.eval())
    assert program is not None
    return allows_channels_last(program, network)


def strides(net: Body, x: Tensor) -> Tensor:
    logits: Tensor = net.fc(F.relu(net.conv(x)).as_strided((2, 3), (1, 2)))
    return logits


def test_views_that_can_be_reshaped_do_not_matter() -> None:
    assert judge(CifarResNet(20))
    assert judge(Body(flatten_with_view))
    assert not judge(Body(view_and_write))
    network = Body(flatten_with_view).eval()
    program = capture(network)
    assert program is not None
    assert not allows_channels_last(program, network, with_views=True)
    assert not judge(Body(strides))


def test_group_normalization_stays_contiguous() -> None:
    assert not judge(nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Flatten()))  # torch 2.13 crashes


@pytest.mark.parametrize("hooked", [False, True])
def test_hooks_may_depend_on_the_layout(hooked: bool) -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten())
    if hooked:
        network[0].register_forward_hook(lambda module, inputs, output: output.view(-1).sum())
    assert judge(network) is not hooked


def test_weights_change_their_layout_and_not_their_values() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4, 2))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    set_layout_(network, torch.channels_last)
    assert network[0].weight.is_contiguous(memory_format=torch.channels_last)  # type: ignore[operator]
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
