"""Networks that are easy or awkward to accelerate."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Body(nn.Module):
    """A convolution, a normalization and a head, put together by a function."""

    def __init__(self, forward: Callable[["Body", Tensor], Tensor], width: int = 4 * 64) -> None:
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(width, 3)
        self.scale = nn.Parameter(torch.ones(4, 1, 1))
        self.history: list[Tensor] = []
        self.function = forward

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def flatten_with_view(net: Body, x: Tensor) -> Tensor:
    """Reshape with ``view``, which channels last does not allow."""
    y = F.relu(net.norm(net.conv(x)))
    logits: Tensor = net.fc(y.view(y.size(0), -1))
    return logits


def view_and_write(net: Body, x: Tensor) -> Tensor:
    """Write through a view and read what it shares memory with."""
    y = net.norm(net.conv(x))
    y.view(y.size(0), -1).mul_(2)
    logits: Tensor = net.fc(y.flatten(1))
    return logits


def decide_by_value(net: Body, x: Tensor) -> Tensor:
    return flatten_with_view(net, x if bool(x.mean() > 0.5) else x * 2)


def decide_by_length(net: Body, x: Tensor) -> Tensor:
    return flatten_with_view(net, x * 2 if len(x) > 4 else x)


def decide_by_shape(net: Body, x: Tensor) -> Tensor:
    return flatten_with_view(net, x * 2 if x.shape[0] == 8 else x)


def scale_by_batch_size(net: Body, x: Tensor) -> Tensor:
    return flatten_with_view(net, x * x.shape[0])


def mix_samples(net: Body, x: Tensor) -> Tensor:
    return flatten_with_view(net, x - x.mean(0, keepdim=True))


def read_twice(net: Body, x: Tensor) -> Tensor:
    """Read the output of a normalization twice, and normalize several times with one layer."""
    y = net.norm(net.conv(x))
    z = net.norm(F.relu(y) + y)
    logits: Tensor = net.fc((F.relu(z) + net.norm(z.abs())).flatten(1))
    return logits


def add_in_place(net: Body, x: Tensor) -> Tensor:
    y = net.conv(x)
    y += net.scale
    z = F.relu(net.norm(y))
    w = net.norm(z * 2)
    w += z
    logits: Tensor = net.fc((F.relu(w) + z).flatten(1))
    return logits


def broadcast_sum(net: Body, x: Tensor) -> Tensor:
    y = net.norm(net.conv(x))
    pooled = net.norm(y.mean((2, 3), keepdim=True) + 1)  # (N, 4, 1, 1), smaller than what is added to it
    logits: Tensor = net.fc(torch.relu(pooled + y).flatten(1))
    return logits


def unpack_shape(net: Body, x: Tensor) -> Tensor:
    n, c, h, w = net.conv(x).shape
    y = net.norm(net.conv(x)).view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w).relu()
    logits: Tensor = net.fc(F.max_pool2d(y, 1).flatten(1))
    return logits


def store_something(net: Body, x: Tensor) -> Tensor:
    net.last = x
    return flatten_with_view(net, x)


def append_something(net: Body, x: Tensor) -> Tensor:
    net.history.append(x.detach())
    return flatten_with_view(net, x)


def read_a_layer(net: Body, x: Tensor) -> Tensor:
    return flatten_with_view(net, x * net.conv.weight.sum())


def loop_over_samples(net: Body, x: Tensor) -> Tensor:
    return flatten_with_view(net, torch.stack([image * 2 for image in x]))


CAPTURED = (
    *(flatten_with_view, view_and_write, read_twice, add_in_place, broadcast_sum, unpack_shape),
    *(scale_by_batch_size, mix_samples),
)
NOT_CAPTURED = (
    *(decide_by_value, decide_by_length, decide_by_shape, store_something, append_something, read_a_layer),
    loop_over_samples,
)


@pytest.fixture(params=[*CAPTURED, *NOT_CAPTURED], ids=lambda function: str(function.__name__))
def awkward(request: pytest.FixtureRequest) -> Body:
    torch.manual_seed(0)
    return Body(request.param)


@pytest.fixture(params=CAPTURED, ids=lambda function: str(function.__name__))
def captured(request: pytest.FixtureRequest) -> Body:
    torch.manual_seed(0)
    return Body(request.param).eval()


@pytest.fixture(params=NOT_CAPTURED, ids=lambda function: str(function.__name__))
def not_captured(request: pytest.FixtureRequest) -> Body:
    torch.manual_seed(0)
    return Body(request.param).eval()
