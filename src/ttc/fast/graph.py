"""The graph of a network, captured in isolation: nothing is patched, and only the network's own forwards run.

The tree of modules is mirrored by shallow copies of the modules that have a forward of their own, in which every layer
is a stub that records its call; the copies then run on a :class:`ttc.fast.symbol.Symbol`. A network whose forward
decides by values, stores something or does anything else that cannot be followed has no graph.
"""

import pickle
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ttc.core.statistics import StatisticsLayer
from ttc.fast.selective_backward import CachingConv
from ttc.fast.symbol import Node, Recorder, Symbol

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


@dataclass(frozen=True)
class Program:
    """What a network computes: plain values, so that copies and pickles need no second capture.

    Args:
        nodes: The operations; the result of ``nodes[i]`` is slot ``i + 1``, slot 0 is the input.
        output: The slot of the result.
        inner: The names of the modules whose forwards the program replaces.
    """

    nodes: tuple[Node, ...]
    output: int
    inner: tuple[str, ...]

    def __deepcopy__(self, memo: object) -> "Program":
        return self


def capture(network: nn.Module) -> Program | None:
    """Capture the graph of a network in evaluation mode.

    Args:
        network: It is neither changed nor run; its layers are not called.

    Returns:
        The program, or None if the network cannot be followed.

    Example:
        >>> program = capture(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval())
        >>> [node.target for node in program.nodes]
        ['0', '1', '2']
    """
    if is_leaf(network) or has_global_hooks():
        return None
    recorder = Recorder()
    mirror = _Mirror(recorder)
    try:
        output = mirror.of(network, "")(Symbol(recorder, 0))
        if type(output) is not Symbol or mirror.has_changed():
            return None
        program = Program(tuple(recorder.nodes), output._index, tuple(mirror.names))
        pickle.dumps(program)
    except Exception:  # whatever a forward does with what is not a tensor
        return None
    return program


def is_leaf(module: nn.Module) -> bool:
    """Tell whether a module is called as a whole: torch's and our layers, and all that has hooks or is unusual."""
    kind = type(module)
    if isinstance(module, StatisticsLayer | _BatchNorm | CachingConv | torch.jit.ScriptModule) or has_hooks(module):
        return True
    if "forward" in vars(module) or kind.__call__ is not nn.Module.__call__:
        return True
    return kind.__module__.startswith(("torch.nn.", "torch.ao.nn.")) and kind not in CONTAINERS


def has_hooks(module: nn.Module) -> bool:
    """Tell whether a module has hooks of any kind."""
    return any(getattr(module, name) for name in HOOKS)


def has_global_hooks() -> bool:
    """Tell whether torch was given hooks for all modules, which a program would not call as the network does."""
    return bool(nn.modules.module._has_any_global_hook())


def shallow_copy(module: nn.Module, **changes: Any) -> nn.Module:
    """Copy a module that shares children and tensors with the original, but for ``changes``; no constructor runs."""
    copied: nn.Module = object.__new__(type(module))
    vars(copied).update({**vars(module), **changes})
    return copied


class _Stub(nn.Module):
    """Records its call; passes for the layer it stands for in ``isinstance``."""

    def __init__(self, layer: nn.Module, name: str, recorder: Recorder) -> None:
        nn.Module.__init__(self)
        vars(self).update(_kind=type(layer), _name=name, _recorder=recorder, training=layer.training)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        kind: type = vars(self)["_kind"]
        return kind

    def forward(self, *args: Any, **kwargs: Any) -> Symbol:
        recorder: Recorder = vars(self)["_recorder"]
        return recorder.record("module", vars(self)["_name"], args, kwargs)


class _Mirror:
    """Makes the shallow copies and knows what was in them."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.names: list[str] = []
        self.copies: list[tuple[nn.Module, dict[str, object]]] = []

    def of(self, module: nn.Module, name: str) -> nn.Module:
        """Return what stands for a module while its network is captured."""
        if is_leaf(module):
            return _Stub(module, name, self.recorder)
        prefix = f"{name}." if name else ""
        attributes = {key: self._attribute(value, f"{prefix}{key}") for key, value in vars(module).items()}
        tensors = {
            group: {key: self._attribute(value, f"{prefix}{key}") for key, value in vars(module)[group].items()}
            for group in ("_parameters", "_buffers")
        }
        children = {
            key: None if child is None else self.of(child, f"{prefix}{key}") for key, child in module._modules.items()
        }
        copied = shallow_copy(module, **{**attributes, **tensors, "_modules": children})
        self.names.append(name)
        self.copies.append((copied, {key: _identity(value) for key, value in vars(copied).items()}))
        return copied

    def has_changed(self) -> bool:
        """Tell whether a forward stored something, which a program would not do."""
        return any(
            before != {key: _identity(value) for key, value in vars(copied).items()} for copied, before in self.copies
        )

    def _attribute(self, value: Any, name: str) -> Any:
        if isinstance(value, Tensor):
            return self.recorder.record("tensor", name)
        return value.copy() if type(value) in {list, dict, set} else value


def _identity(value: Any) -> object:
    if type(value) in {list, tuple, set}:
        return [id(item) for item in value]
    if type(value) is dict:
        return {key: id(item) for key, item in value.items()}
    return id(value)
