"""Operations that save less for the backward pass, where activations are large."""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ttc.nn.activation import clamp_, where_active

Convolution = Any
"""A ``Conv2d`` with zero padding, or a layer with the same attributes."""

LARGE = 1 << 19  # elements, above which memory matters more than the overhead of a backward pass in Python


def is_large(x: Tensor) -> bool:
    """Tell whether it pays to save less of ``x`` for the backward pass."""
    return x.numel() >= LARGE and torch.is_grad_enabled() and not torch.compiler.is_compiling()


def relu_(x: Tensor, ceiling: float = math.inf) -> Tensor:
    """Apply ReLU to ``x`` in place, saving a quarter of what torch saves for the backward pass if ``x`` is large.

    Args:
        x: What is written over.
        ceiling: The largest output: 6 for ReLU6.

    Example:
        >>> x = torch.tensor([-1.0, 2.0, 8.0], requires_grad=True)
        >>> relu_(x * 1, ceiling=6.0).tolist()
        [0.0, 2.0, 6.0]
    """
    if not is_large(x) or not x.requires_grad:
        return clamp_(x, ceiling)
    return _apply(_ReLU, x, ceiling)


def norm_relu(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, ceiling: float = math.inf) -> Tensor:
    """Apply ReLU to ``x`` (N, C, ...) normalized by its own statistics, saving only ``x`` for the backward pass."""
    return _apply(_NormReLU, x, weight, bias, eps, ceiling)


def frozen_conv(layer: Convolution, x: Tensor) -> Tensor:
    """Convolve ``x`` with weights that are not trained, without saving ``x`` for the backward pass if it is large."""
    if is_large(x) and x.requires_grad and not layer.weight.requires_grad:
        return with_conv_gradient(layer, x, convolve(layer, x.detach()))
    return convolve(layer, x)


def convolve(layer: Convolution, x: Tensor) -> Tensor:
    """Return the convolution of ``x``."""
    return F.conv2d(x, layer.weight, layer.bias, layer.stride, layer.padding, layer.dilation, layer.groups)


def conv2d(x: Tensor, weight: Tensor, bias: Tensor | None = None, *options: Any, **named: Any) -> Tensor:
    """Return ``F.conv2d`` of these arguments, without saving a large ``x`` for frozen weights, as :func:`frozen_conv`.

    Example:
        >>> x, weight = torch.rand(1, 3, 8, 8), torch.rand(4, 3, 3, 3)
        >>> torch.equal(conv2d(x, weight, None, 2, padding=1), F.conv2d(x, weight, stride=2, padding=1))
        True
    """
    layer = _ConvArguments(weight, bias, *options, **named)
    trained = bias is not None and bias.requires_grad
    plain = x.ndim == 4 and not isinstance(layer.padding, str)
    return frozen_conv(layer, x) if plain and not trained else convolve(layer, x)


class _ConvArguments(NamedTuple):
    """The arguments of ``F.conv2d`` but for its input, in its order and with its defaults."""

    weight: Tensor
    bias: Tensor | None = None
    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: int = 1


def with_conv_gradient(layer: Convolution, x: Tensor, output: Tensor) -> Tensor:
    """Return ``output``, known to be the convolution of ``x``, with the gradient of that."""
    return _apply(_ConvGradient, x, output, layer)


def can_freeze(layer: nn.Module) -> bool:
    """Tell whether :func:`frozen_conv` can compute a layer: a convolution with zero padding that is not trained."""
    plain = type(layer) is nn.Conv2d and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    hooked = bool(
        layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks
    )
    return plain and not hooked and not any(parameter.requires_grad for parameter in layer.parameters())


def _apply(function: Any, *operands: Any) -> Tensor:
    output: Tensor = function.apply(*operands)
    return output


class _ConvGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, output: Tensor, layer: Any) -> Tensor:
        ctx.layer, ctx.shape = layer, x.shape
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None]:
        if not ctx.needs_input_grad[0]:
            return None, None, None
        layer, given = ctx.layer, gradient.dtype
        if _is_slow_in(given, layer, gradient.device):
            gradient = gradient.float()
        last = gradient.is_contiguous(memory_format=torch.channels_last)
        layout = torch.channels_last if last else torch.contiguous_format
        x = torch.empty(ctx.shape, dtype=gradient.dtype, device=gradient.device, memory_format=layout)  # never read
        geometry = map(_pair, (layer.stride, layer.padding, layer.dilation))
        back = torch.ops.aten.convolution_backward(
            gradient, x, layer.weight.to(gradient.dtype), None, *geometry, False, [0, 0], layer.groups,
            [True, False, False],
        )  # fmt: skip
        return back[0].to(given), None, None


def _is_slow_in(dtype: torch.dtype, layer: Any, device: torch.device) -> bool:
    """Tell whether a CPU has no kernel for the gradient: a strided convolution per channel in half precision."""
    return device.type == "cpu" and dtype.itemsize < 4 and layer.groups > 1 and max(_pair(layer.stride)) > 1


def _pair(value: Any) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value)


def _slope(y: Tensor, ceiling: float) -> Tensor:
    """Return a tensor that is zero where the clamped ``y`` has the slope zero."""
    if ceiling == math.inf:
        return y
    slope: Tensor = torch.ops.aten.hardtanh_backward(y.new_ones(1).expand_as(y), y, 0, ceiling)
    return slope


class _ReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, ceiling: float) -> Tensor:
        ctx.mark_dirty(x)
        clamp_(x, ceiling)
        # To booleans and from bytes: of the conversions and comparisons these are the vectorized ones.
        ctx.save_for_backward(_slope(x, ceiling).to(torch.bool).view(torch.uint8))
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (active,) = ctx.saved_tensors
        return where_active(gradient, active.to(gradient.dtype), math.inf), None


class _NormReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, ceiling: float) -> Tensor:
        y, mean, scale = torch.native_batch_norm(x, weight, bias, None, None, True, 0.0, eps)
        ctx.save_for_backward(x, weight, bias, mean, scale)
        ctx.eps, ctx.ceiling = eps, ceiling
        return clamp_(y, ceiling)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        x, weight, bias, mean, scale = ctx.saved_tensors
        # The output again, from the statistics: cheaper than to save it.
        y, _, _ = torch.native_batch_norm(x, weight, bias, mean, scale.pow(-2), False, 0.0, 0.0)
        gradient = where_active(gradient, y, ctx.ceiling)
        needed = [*ctx.needs_input_grad[:2], bias is not None and ctx.needs_input_grad[2]]
        back = torch.ops.aten.native_batch_norm_backward(
            gradient, x, weight, None, None, mean, scale, True, ctx.eps, needed
        )
        to_x, to_weight, to_bias = (part if asked else None for part, asked in zip(back, needed, strict=True))
        return to_x, to_weight, to_bias, None, None
