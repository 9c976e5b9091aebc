"""Layers that keep less for the backward pass, where activations are large."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LARGE = 1 << 19  # elements, above which the memory matters more than the overhead of our own backward pass


def is_large(x: Tensor) -> bool:
    """Whether it pays to keep less of ``x``."""
    return x.numel() >= LARGE and torch.is_grad_enabled() and not torch.compiler.is_compiling()


def relu_(x: Tensor) -> Tensor:
    """ReLU in the place of ``x``, keeping a quarter as much as torch's for the backward pass.

    >>> x = torch.tensor([-1.0, 2.0], requires_grad=True)
    >>> relu_(x * 1).tolist()
    [0.0, 2.0]
    """
    if not is_large(x) or not x.requires_grad:
        return x.relu_()
    return _applied(_ReLU, x)


def norm_relu(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """ReLU of ``x`` (N, C, ...) normalized by its own statistics, keeping nothing but ``x`` for the backward pass."""
    return _applied(_NormReLU, x, weight, bias, eps)


def _applied(function: Any, *operands: Any) -> Tensor:
    answer: Tensor = function.apply(*operands)
    return answer


class FrozenConv(nn.Module):
    """A convolution whose weights are not trained: it need not keep its input, as torch's does."""

    leaf = True  # for a trace

    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        self.stride, self.padding, self.dilation, self.groups = (
            layer.stride,
            layer.padding,
            layer.dilation,
            layer.groups,
        )

    def forward(self, x: Tensor) -> Tensor:
        if is_large(x) and x.requires_grad:
            return self.known(x, self.convolved(x.detach()))
        return self.convolved(x)

    def convolved(self, x: Tensor) -> Tensor:
        """The convolution of ``x``."""
        return F.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    def known(self, x: Tensor, output: Tensor) -> Tensor:
        """``output``, with the gradient of the convolution of ``x``."""
        return _applied(_Convolved, x, output, self)


def can_freeze(layer: nn.Module) -> bool:
    """Whether a :class:`FrozenConv` can take the place of a layer."""
    plain = type(layer) is nn.Conv2d and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    hooked = bool(layer._forward_hooks or layer._forward_pre_hooks)
    return plain and not hooked and not any(parameter.requires_grad for parameter in layer.parameters())


class _Convolved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, output: Tensor, layer: FrozenConv) -> Tensor:
        ctx.layer, ctx.shape = layer, x.shape
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None]:
        if not ctx.needs_input_grad[0]:
            return None, None, None
        layer = ctx.layer
        last = gradient.is_contiguous(memory_format=torch.channels_last)
        layout = torch.channels_last if last else torch.contiguous_format
        x = torch.empty(ctx.shape, dtype=gradient.dtype, device=gradient.device, memory_format=layout)  # never read
        back = torch.ops.aten.convolution_backward(
            *(gradient, x, layer.weight, None, layer.stride, layer.padding, layer.dilation, False, [0, 0]),
            *(layer.groups, [True, False, False]),
        )
        return back[0], None, None


def _where_positive(gradient: Tensor, y: Tensor) -> Tensor:
    """``gradient`` where ``y`` is positive, else zero; written over ``y``."""
    back: Tensor = torch.ops.aten.threshold_backward.grad_input(gradient, y, 0, grad_input=y)
    return back


class _ReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        x.relu_()
        ctx.save_for_backward((x > 0).view(torch.uint8))  # whose conversion is vectorized, as that of booleans is not
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (kept,) = ctx.saved_tensors
        return _where_positive(gradient, kept.to(gradient.dtype))


class _NormReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
        y, mean, scale = torch.native_batch_norm(x, weight, bias, None, None, True, 0.0, eps)
        ctx.save_for_backward(x, weight, bias, mean, scale)
        ctx.eps = eps
        return y.relu_()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        x, weight, bias, mean, scale = ctx.saved_tensors
        # The output again, from the statistics: cheaper than to keep it.
        y, _, _ = torch.native_batch_norm(x, weight, bias, mean, scale.pow(-2), False, 0.0, 0.0)
        gradient = _where_positive(gradient, y)
        needed = [*ctx.needs_input_grad[:2], bias is not None and ctx.needs_input_grad[2]]
        back = torch.ops.aten.native_batch_norm_backward(
            gradient, x, weight, None, None, mean, scale, True, ctx.eps, needed
        )
        to_x, to_weight, to_bias = (part if asked else None for part, asked in zip(back, needed, strict=True))
        return to_x, to_weight, to_bias, None
