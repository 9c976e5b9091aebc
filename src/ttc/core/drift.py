"""How far an adapter has moved from where it began."""

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from ttc.core.adapter import Adapter


def parameter_drift(adapter: "Adapter") -> float:
    """Compute ‖θ - θ₀‖ / ‖θ₀‖ of the trainable parameters.

    Args:
        adapter: Any adapter.

    Returns:
        0 when nothing is trainable; NaN or infinite when the parameters are.
    """
    initial = adapter.initial_tensors
    pairs = [
        (parameter.detach(), initial[name].to(parameter.device))
        for name, parameter in adapter.model.named_parameters()
        if parameter.requires_grad
    ]
    if not pairs:
        return 0.0
    current, start = [list(tensors) for tensors in zip(*pairs, strict=True)]
    distance = torch.stack(torch._foreach_norm(torch._foreach_sub(current, start))).float().norm()
    return float(distance / torch.stack(torch._foreach_norm(start)).float().norm().clamp(min=1e-12))
