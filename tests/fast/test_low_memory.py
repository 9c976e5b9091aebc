"""Operations that save less for the backward pass equal torch's."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ttc.fast import low_memory
from ttc.fast.low_memory import can_freeze, frozen_conv, norm_relu, relu_


def test_they_equal_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(low_memory, "LARGE", 1)
    torch.manual_seed(0)
    x = torch.randn(3, 4, 6, 6, dtype=torch.float64, requires_grad=True)
    weight, bias = (torch.rand(4, dtype=torch.float64).requires_grad_(True) for _ in range(2))
    assert torch.autograd.gradcheck(lambda x, w, b: norm_relu(x, w, b, 1e-5), (x, weight, bias))
    assert torch.autograd.gradcheck(lambda x: relu_(x * 1), (x,))
    conv = nn.Conv2d(4, 5, 3, stride=2, padding=1).double().requires_grad_(False)
    torch.testing.assert_close(frozen_conv(conv, x), conv(x))
    assert torch.autograd.gradcheck(partial(frozen_conv, conv), (x,))
    expected = F.relu(F.batch_norm(x, None, None, weight, bias, True, 0.0, 1e-5))
    torch.testing.assert_close(norm_relu(x, weight, bias, 1e-5), expected)


def test_a_convolution_that_is_trained_after_all_gets_its_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(low_memory, "LARGE", 1)
    conv, x = nn.Conv2d(2, 2, 3), torch.rand(1, 2, 5, 5, requires_grad=True)
    frozen_conv(conv, x).sum().backward()
    assert conv.weight.grad is not None


def test_only_plain_frozen_convolutions_can_be_replaced() -> None:
    assert can_freeze(nn.Conv2d(2, 2, 3).requires_grad_(False))
    assert not can_freeze(nn.Conv2d(2, 2, 3))
    assert not can_freeze(nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect").requires_grad_(False))
    assert not can_freeze(nn.Conv2d(2, 2, 3, padding="same").requires_grad_(False))
    hooked = nn.Conv2d(2, 2, 3).requires_grad_(False)
    hooked.register_full_backward_hook(lambda *_: None)
    assert not can_freeze(hooked)
