"""Everything that changes while an adapter runs, gathered from what each part names, and put back.

A part lists its changing attributes in ``holds``; what those hold is followed down to tensors and numbers. Optimizers
and modules need no list: they bring a state dict, and the tensors that adaptation may change.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ttc.core.snapshot import Snapshot, changeable

State = Any
"""Tensors, numbers, strings and None, in dicts, lists and tuples."""

PLAIN = (bool, int, float, str, type(None))


def state_of(value: object) -> State:
    """Copies of what changes in ``value``; None for what never does, such as a function.

    >>> class Counter:
    ...     holds = ("count",)
    ...     count = 3
    >>> state_of({"counter": Counter(), "rate": 0.1, "function": len})
    {'counter': {'count': 3}, 'rate': 0.1, 'function': None}
    """
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, nn.Module):
        return Snapshot(value).tensors
    if isinstance(value, Optimizer):
        return state_of(value.state_dict())
    if isinstance(value, dict):
        return {key: state_of(item) for key, item in value.items()}
    if isinstance(value, list):
        return [state_of(item) for item in value]
    if isinstance(value, tuple):
        return tuple(state_of(item) for item in value)
    names: tuple[str, ...] | None = getattr(type(value), "holds", None)
    if names is not None:
        return {name: state_of(getattr(value, name)) for name in names}
    return value if isinstance(value, PLAIN) else None


def restored(value: Any, kept: State, device: torch.device) -> Any:
    """``value`` with the changes in ``kept``: the same object where it is one, else a copy of what was kept."""
    if isinstance(value, nn.Module):
        with torch.no_grad():
            for name, tensor in changeable(value).items():
                if name in kept:
                    tensor.copy_(kept[name])
    elif isinstance(value, Optimizer):
        value.load_state_dict(state_of(kept))  # a copy, or the optimizer would write into what was kept
    elif hasattr(type(value), "holds"):
        for name in type(value).holds:
            setattr(value, name, restored(getattr(value, name), kept[name], device))
    elif isinstance(value, list | tuple):
        items = [restored(item, old, device) for item, old in zip(value, kept, strict=True)]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    elif isinstance(value, (Tensor, *PLAIN)):
        return kept.clone().to(device) if isinstance(kept, Tensor) else kept
    return value
