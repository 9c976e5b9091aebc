"""Copy and restore everything that changes while an adapter runs.

A part lists its changing attributes in ``state_attributes``; their values are followed down to tensors and numbers.
Optimizers and modules need no list: they have a state dict and the tensors that adaptation may change.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

State = Any
"""Tensors, numbers, strings and None, in dicts, lists and tuples."""

PLAIN = (bool, int, float, str, type(None))


class Snapshot:
    """Copies of a model's trainable parameters and buffers at one moment.

    Args:
        model: The module to copy from.

    Example:
        >>> layer = nn.Linear(2, 2)
        >>> before = Snapshot(layer)
        >>> _ = layer.weight.data.zero_()
        >>> before.restore(layer)
        >>> bool(layer.weight.any())
        True
    """

    def __init__(self, model: nn.Module) -> None:
        self.tensors = {name: tensor.detach().clone() for name, tensor in changeable_tensors(model).items()}

    @torch.no_grad()
    def restore(self, model: nn.Module) -> None:
        """Copy the saved values back into ``model``, in place, so that optimizers keep their parameters."""
        for name, tensor in changeable_tensors(model).items():
            tensor.copy_(self.tensors[name])


def changeable_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return the trainable parameters and the buffers of a model, by name."""
    trainable = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    return {**trainable, **dict(model.named_buffers())}


def tensors_digest(tensors: Mapping[str, Tensor], header: str = "") -> str:
    """Compute the SHA-256 of tensors: of their names, types, shapes and bytes, whatever the order of the mapping.

    Args:
        tensors: The tensors by name, on any device.
        header: Text that is part of the digest.

    Returns:
        The digest in hexadecimal.
    """
    digest = hashlib.sha256(header.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def model_digest(model: nn.Module) -> str:
    """Compute the SHA-256 of every parameter and buffer of a model."""
    return tensors_digest({**dict(model.named_parameters()), **dict(model.named_buffers())})


def capture_state(value: object) -> State:
    """Copy what changes in ``value``; None for what never does, such as a function.

    Example:
        >>> class Counter:
        ...     state_attributes = ("count",)
        ...     count = 3
        >>> capture_state({"counter": Counter(), "rate": 0.1, "function": len})
        {'counter': {'count': 3}, 'rate': 0.1, 'function': None}
    """
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, nn.Module):
        return Snapshot(value).tensors
    if isinstance(value, Optimizer):
        return capture_state(value.state_dict())
    if isinstance(value, dict):
        return {key: capture_state(item) for key, item in value.items()}
    if isinstance(value, list):
        return [capture_state(item) for item in value]
    if isinstance(value, tuple):
        return tuple(capture_state(item) for item in value)
    names: tuple[str, ...] | None = getattr(type(value), "state_attributes", None)
    if names is not None:
        return {name: capture_state(getattr(value, name)) for name in names}
    return value if isinstance(value, PLAIN) else None


def restore_state(value: Any, state: State, device: torch.device) -> Any:
    """Restore a captured state: into ``value`` where it is an object with state, else as a copy.

    Args:
        value: What :func:`capture_state` copied from, or an equally built object.
        state: The captured state; it is copied, never aliased.
        device: Where restored tensors go.

    Returns:
        ``value`` itself when it was restored in place, else the restored copy.
    """
    if isinstance(value, nn.Module):
        with torch.no_grad():
            for name, tensor in changeable_tensors(value).items():
                if name in state:
                    tensor.copy_(state[name])
    elif isinstance(value, Optimizer):
        value.load_state_dict(capture_state(state))  # a copy, or the optimizer would write into the state
    elif hasattr(type(value), "state_attributes"):
        for name in type(value).state_attributes:
            setattr(value, name, restore_state(getattr(value, name), state[name], device))
    elif isinstance(value, list | tuple) and isinstance(state, list | tuple) and len(value) == len(state):
        items = [restore_state(item, old, device) for item, old in zip(value, state, strict=True)]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    elif isinstance(value, (Tensor, dict, list, tuple, *PLAIN)):
        return _copy_to(state, device)
    return value


def _copy_to(state: State, device: torch.device) -> State:
    if isinstance(state, Tensor):
        return state.clone().to(device)
    if isinstance(state, dict):
        return {key: _copy_to(item, device) for key, item in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(_copy_to(item, device) for item in state)
    return state
