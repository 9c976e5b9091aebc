"""Only networks of known operations share a pass between batches."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ttc.fast.graph import capture
from ttc.fast.per_sample import is_per_sample
from ttc.models.building import build
from ttc.models.cifar_resnet import CifarResNet
from ttc.models.wide_resnet import WideResNet

from .conftest import Body, flatten_with_view, mix_samples, scale_by_batch_size, unpack_shape


def judge(network: nn.Module) -> bool:
    program = capture(network.eval())
    assert program is not None
    return is_per_sample(program, network)


@pytest.mark.parametrize("network", [CifarResNet(20), WideResNet(16, 4), build("imagenet-resnet50")], ids=type)
def test_residual_networks_are(network: nn.Module) -> None:
    assert judge(network)


def test_what_mixes_samples_is_not() -> None:
    assert judge(Body(flatten_with_view))
    assert not judge(Body(mix_samples))
    assert not judge(Body(scale_by_batch_size))
    assert not judge(Body(unpack_shape))  # not known: it may, it may not


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (lambda net, x: net.fc(net.conv(x).flatten(1)), True),
        (lambda net, x: net.fc(net.conv(x).flatten()), False),
        (lambda net, x: net.fc(torch.cat([x, x], 1)), True),
        (lambda net, x: net.fc(torch.cat([x, x])), False),
        (lambda net, x: net.fc(x[:, :, 0]), True),
        (lambda net, x: net.fc(x[0]), False),
        (lambda net, x: net.fc(x.mean((2, 3))), True),
        (lambda net, x: net.fc(x.mean((0, 2))), False),
        (lambda net, x: net.fc(x.mean()), False),
        (lambda net, x: net.fc(F.normalize(x)), False),  # not in the list
        (lambda net, x: net.fc(x.reshape(x.shape[0], -1)), True),
        (lambda net, x: net.fc(x.reshape(x.shape[1], -1)), False),
        (lambda net, x: net.fc(x.reshape(-1, x.shape[0])), False),
    ],
)
def test_each_operation_is_known_or_not(operation: object, expected: bool) -> None:
    assert callable(operation)
    assert judge(Body(operation)) is expected


def test_layers_with_statistics_of_all_they_get_are_not() -> None:
    assert not judge(nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False), nn.Flatten()))
    hooked = nn.Sequential(nn.ReLU(), nn.Flatten())
    hooked[0].register_forward_hook(lambda module, inputs, output: output - output.mean(0))
    assert not judge(hooked)


class Unknown(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.roll(1, 0)


def test_a_method_that_is_not_in_the_list_is_not() -> None:
    assert not judge(Unknown())
