"""Operations that save less for the backward pass equal torch's."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ttc.fast import low_memory
from ttc.fast.low_memory import can_freeze, conv2d, frozen_conv, norm_relu, relu_


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


def test_relu6_stops_the_gradient_at_its_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(low_memory, "LARGE", 1)
    torch.manual_seed(0)
    x = torch.randn(3, 4, 6, 6, dtype=torch.float64, requires_grad=True)
    weight, bias = torch.full((4,), 5.0, dtype=torch.float64), torch.rand(4, dtype=torch.float64)
    expected = F.relu6(F.batch_norm(x, None, None, weight, bias, True, 0.0, 1e-5))
    assert bool((expected == 6).any())
    torch.testing.assert_close(norm_relu(x, weight, bias, 1e-5, 6.0), expected)
    assert torch.autograd.gradcheck(lambda x: norm_relu(x, weight, bias, 1e-5, 6.0), (x,))
    assert torch.equal(relu_(x * 5, 6.0), F.relu6(x * 5))
    assert torch.autograd.gradcheck(lambda x: relu_(x * 5, 6.0), (x,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("ceiling", "torchs"), [(math.inf, F.relu), (6.0, F.relu6)])
def test_the_gradient_of_a_large_relu_equals_torchs_to_the_bit(
    ceiling: float, torchs: Callable[[Tensor], Tensor], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(low_memory, "LARGE", 1)
    torch.manual_seed(0)
    x = (torch.randn(2, 4, 8, 8) * 5).to(dtype).contiguous(memory_format=torch.channels_last)
    x[0, 0, 0, :6] = torch.tensor([-0.0, 0.0, 6.0, 1e-30, -1e-30, 7.0])
    gradient = torch.randn_like(x)
    ours, theirs = (x.clone().requires_grad_(True) for _ in range(2))
    relu_(ours * 1, ceiling).backward(gradient)
    torchs(theirs * 1).backward(gradient)
    assert ours.grad is not None
    assert theirs.grad is not None
    assert torch.equal(ours.grad, theirs.grad)


@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": (1, 0)}, {"padding": "same"}, {"groups": 2}])
@pytest.mark.parametrize("trained", [False, True])
def test_a_function_call_equals_torchs(options: dict[str, Any], trained: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(low_memory, "LARGE", 1)
    torch.manual_seed(0)
    x = torch.randn(2, 4, 6, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(4, 4 // options.get("groups", 1), 3, 3, dtype=torch.float64)
    bias = torch.rand(4, dtype=torch.float64, requires_grad=trained)
    inputs = [x, bias] if trained else [x]
    for other in (None, bias):
        ours, theirs = conv2d(x, weight, other, **options), F.conv2d(x, weight, other, **options)
        torch.testing.assert_close(ours, theirs)
        asked = inputs if other is not None else [x]
        for one, two in zip(
            torch.autograd.grad(ours.sin().sum(), asked), torch.autograd.grad(theirs.sin().sum(), asked), strict=True
        ):
            torch.testing.assert_close(one, two)


def test_what_a_cpu_has_no_kernel_for_is_computed_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(low_memory, "LARGE", 1)
    torch.manual_seed(0)
    x = torch.randn(2, 4, 8, 8, dtype=torch.bfloat16, requires_grad=True)
    conv = nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=4).bfloat16().requires_grad_(False)
    gradient = torch.randn(2, 4, 4, 4, dtype=torch.bfloat16)
    (ours,) = torch.autograd.grad(frozen_conv(conv, x), x, gradient)
    (exact,) = torch.autograd.grad(conv.float()(x.float()), x, gradient.float())
    assert torch.equal(ours, exact)


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
