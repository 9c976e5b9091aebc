"""Copy and restore everything that changes while an adapter runs.

A part lists its changing attributes in ``state_attributes``; their values are followed down to tensors and numbers.
Optimizers and modules need no list: they have a state dict and the tensors that adaptation may change.
"""

import hashlib
import math
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


def check_state(value: Any, state: State, where: str = "state", *, resizable: bool = False) -> None:
    """Check that ``state`` fits ``value``, before any of it is restored.

    Names, types, shapes and dtypes must be those of ``value``, and numbers finite. A part may check more in a method
    ``check_state(state)``, and name in ``resizable_attributes`` those whose tensors differ in length (the first
    dimension) or whose lists do. An attribute that is None now may be None, a tensor or a number.

    Args:
        value: What the state would be restored into, in its initial state.
        state: The state, such as one read from a file.
        where: The name of ``value`` in messages.
        resizable: Whether the length of tensors may differ.

    Raises:
        ValueError: If the state does not fit; the message names the place.
    """
    names: tuple[str, ...] | None = getattr(type(value), "state_attributes", None)
    if isinstance(value, nn.Module):
        _check_module(value, state, where)
    elif isinstance(value, Optimizer):
        _check_optimizer(value, state, where)
    elif names is not None:
        _require(isinstance(state, dict) and set(state) == set(names), where, f"expected {', '.join(names)}")
        lengths = getattr(type(value), "resizable_attributes", ())
        for name in names:
            check_state(getattr(value, name), state[name], f"{where}.{name}", resizable=name in lengths)
        if hasattr(value, "check_state"):
            value.check_state(state)
    elif isinstance(value, Tensor):
        _check_tensor(value, state, where, resizable=resizable)
    elif isinstance(value, list) and resizable:
        _require(isinstance(state, list), where, "expected a list")
        for index, new in enumerate(state):
            fits = isinstance(new, (Tensor, *PLAIN)) and _is_finite(new)
            _require(fits, f"{where}[{index}]", "expected a finite tensor or number")
    elif isinstance(value, list | tuple):
        _require(isinstance(state, list | tuple) and len(state) == len(value), where, f"expected {len(value)} items")
        for index, (item, new) in enumerate(zip(value, state, strict=True)):
            check_state(item, new, f"{where}[{index}]", resizable=resizable)
    elif isinstance(value, dict):
        _require(isinstance(state, dict) and set(state) == set(value), where, "other keys than expected")
        for key, item in value.items():
            check_state(item, state[key], f"{where}[{key!r}]", resizable=resizable)
    elif value is None:
        if isinstance(state, Tensor):
            _require(_is_finite(state), where, "values that are not finite")
        else:
            _require(isinstance(state, PLAIN) and _is_finite(state), where, "expected a tensor, a number or nothing")
    elif isinstance(value, PLAIN):
        same = type(state) is type(value) or (isinstance(value, float) and type(state) is int)
        _require(same and _is_finite(state), where, f"expected {type(value).__name__}, got {str(state)[:40]!r}")
    else:
        _require(state is None, where, "expected nothing")


def _check_module(value: nn.Module, state: State, where: str) -> None:
    tensors = changeable_tensors(value)
    _require(isinstance(state, dict), where, "expected tensors by name")
    for name, tensor in state.items():
        _require(name in tensors, where, f"there is no tensor {str(name)[:80]!r} that adaptation changes")
        _check_tensor(tensors[name], tensor, f"{where}.{name}")


def _check_optimizer(value: Optimizer, state: State, where: str) -> None:
    current = value.state_dict()
    _require(isinstance(state, dict) and set(state) == set(current), where, "expected state and param_groups")
    check_state(current["param_groups"], state["param_groups"], f"{where}.param_groups")
    for group, new in zip(current["param_groups"], state["param_groups"], strict=True):
        _require(list(new["params"]) == list(group["params"]), where, "other parameters than the model's")
    parameters = [parameter for group in value.param_groups for parameter in group["params"]]
    _require(isinstance(state["state"], dict), where, "expected moments by parameter")
    for index, moments in state["state"].items():
        known = type(index) is int and 0 <= index < len(parameters)
        _require(known and isinstance(moments, dict), where, f"there is no parameter {str(index)[:40]!r}")
        for name, moment in moments.items():
            place = f"{where}.state[{index}].{str(name)[:40]}"
            if isinstance(moment, Tensor) and moment.numel() != 1:
                _check_tensor(parameters[index], moment, place)
            else:
                _require(isinstance(moment, (Tensor, *PLAIN)) and _is_finite(moment), place, "expected a finite number")


def _check_tensor(value: Tensor, state: State, where: str, *, resizable: bool = False) -> None:
    _require(isinstance(state, Tensor), where, "expected a tensor")
    _require(state.dtype == value.dtype, where, f"expected {value.dtype}, got {state.dtype}")
    cut = int(resizable and value.ndim > 0)
    fits = state.ndim == value.ndim and state.shape[cut:] == value.shape[cut:]
    _require(fits, where, f"expected shape {tuple(value.shape)}, got {tuple(state.shape)}")
    _require(_is_finite(state), where, "values that are not finite")


def _is_finite(state: object) -> bool:
    if isinstance(state, Tensor):
        return not state.is_floating_point() or bool(state.isfinite().all())
    if isinstance(state, int):
        return abs(state) < 1 << 63
    return not isinstance(state, float) or math.isfinite(state)


def _require(condition: bool, where: str, problem: str) -> None:
    if not condition:
        raise ValueError(f"{where}: {problem}")


def _copy_to(state: State, device: torch.device) -> State:
    if isinstance(state, Tensor):
        return state.clone().to(device)
    if isinstance(state, dict):
        return {key: _copy_to(item, device) for key, item in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(_copy_to(item, device) for item in state)
    return state
