"""ReLU written over its operand, and its gradient: for layers that compute a normalization and its ReLU in one step."""

import math

import torch
from torch import Tensor


def clamp_(x: Tensor, ceiling: float) -> Tensor:
    """Apply ReLU in place, up to ``ceiling``: 6 for ReLU6, else infinity."""
    return x.relu_() if ceiling == math.inf else x.clamp_(0, ceiling)


def where_active(gradient: Tensor, y: Tensor, ceiling: float) -> Tensor:
    """Return ``gradient`` where ``y`` is between zero and ``ceiling``, else zero; written over ``y``.

    Example:
        >>> where_active(torch.ones(3), torch.tensor([-1.0, 2.0, 8.0]), 6.0).tolist()
        [0.0, 1.0, 0.0]
    """
    back: Tensor
    if ceiling == math.inf:
        back = torch.ops.aten.threshold_backward.grad_input(gradient, y, 0, grad_input=y)
    else:
        back = torch.ops.aten.hardtanh_backward.grad_input(gradient, y, 0, ceiling, grad_input=y)
    return back
