"""A program bound to the layers of a network, with sums and activations computed in place where nobody can tell.

The operand written over is always fresh: the output of a normalization or a sum, read once, which no backward pass
needs. That saves an allocation and a pass over memory per layer, and changes no value.
"""

import math
import operator
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ttc.fast.graph import Program, has_hooks
from ttc.fast.low_memory import can_freeze, conv2d, frozen_conv, is_large, norm_relu, relu_
from ttc.fast.selective_backward import CachingNorm
from ttc.fast.symbol import Node, Slot
from ttc.nn.normalization import BatchStatisticsNorm, BlendNorm, SourceNorm
from ttc.nn.pooling import PooledNorm
from ttc.nn.stream_statistics import EmaNorm, RunningNorm, WindowNorm

ALLOCATING = {  # layers whose output is new memory that their backward pass does not need
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm, SourceNorm, BatchStatisticsNorm, CachingNorm),
    *(BlendNorm, EmaNorm, PooledNorm, RunningNorm, WindowNorm),
}
FusibleNorm = BatchStatisticsNorm | PooledNorm
FUSIBLE = (BatchStatisticsNorm, PooledNorm)  # layers that can be one step with the ReLU behind them
SUMS = (operator.add, torch.add)
RELUS: dict[object, float] = {F.relu: math.inf, torch.relu: math.inf, F.relu6: 6.0}  # with their largest outputs
RELU_LAYERS: dict[type, float] = {nn.ReLU: math.inf, nn.ReLU6: 6.0}
CONVOLUTIONS = (F.conv2d, torch.conv2d)
IN_PLACE = (operator.iadd, operator.isub, operator.imul, operator.itruediv)


class Instruction(NamedTuple):
    """One call of ``function`` with the values of ``inputs``; its result becomes the value of ``output``."""

    function: Callable[..., Any]
    inputs: tuple[int, ...]
    output: int
    dead: tuple[int, ...]  # values that are not read again


class BoundProgram(NamedTuple):
    """The calls that compute the output of a network, in order."""

    steps: tuple[Instruction, ...]
    output: int
    size: int

    def __call__(self, x: Tensor) -> Any:
        values: list[Any] = [None] * self.size
        values[0] = x
        for function, inputs, output, dead in self.steps:
            values[output] = function(*[values[index] for index in inputs])
            for index in dead:
                values[index] = None
        return values[self.output]


def bind(program: Program, network: nn.Module, batches: int = 1) -> BoundProgram:
    """Bind a program to the layers that ``network`` has now.

    Args:
        program: What :func:`ttc.fast.graph.capture` returned for the network.
        network: Where the layers are looked up.
        batches: How many batches of equal size the input contains, each with batch statistics of its own.

    Returns:
        A callable that computes what the network computes.
    """
    binding = _Binding(program, network, batches)
    calls = list(binding.calls())
    final = binding.aliases.get(program.output, program.output)
    last = {slot: position for position, (_, inputs, index) in enumerate(calls) for slot in (*inputs, index)}
    dead: list[list[int]] = [[] for _ in calls]
    for slot, position in last.items():
        if slot != final:
            dead[position].append(slot)
    steps = tuple(Instruction(*call, tuple(gone)) for call, gone in zip(calls, dead, strict=True))
    return BoundProgram(steps, final, len(program.nodes) + 1)


def writes_in_place(node: Node, network: nn.Module) -> bool:
    """Tell whether an operation may write over its operand."""
    if node.kind == "module":
        return bool(getattr(network.get_submodule(node.target), "inplace", False))
    name = str(getattr(node.target, "__name__", node.target))
    return (
        node.function in IN_PLACE
        or name.endswith("_")
        or any(key in {"inplace", "out"} and value for key, value in node.kwargs)
    )


def is_reshaping_view(node: Node, program: Program, network: nn.Module) -> bool:
    """Tell whether a ``view`` may be a ``reshape``, which works in any memory layout: nobody writes into its result."""
    if node.kind != "method" or node.target != "view" or any(isinstance(arg, torch.dtype) for arg in node.args):
        return False
    slot = Slot(next(index for index, other in enumerate(program.nodes, 1) if other is node))
    return not any(slot in other.operands and writes_in_place(other, network) for other in program.nodes)


class _Binding:
    def __init__(self, program: Program, network: nn.Module, batches: int) -> None:
        self.program, self.network, self.batches = program, network, batches
        self.nodes = dict(enumerate(program.nodes, 1))
        self.uses = Counter(slot.index for node in program.nodes for slot in node.operands)
        self.uses[program.output] += 1
        self.aliases: dict[int, int] = {}  # a ReLU that is fused into its normalization has the value of that
        self.fused = {  # the outputs of normalizations that are one step with their ReLU, each with that
            relu.operand: relu
            for relu in map(self._relu, program.nodes)
            if relu and self._is_fresh(relu.operand) and self._is_fusible(self.nodes[relu.operand.index])
        }

    def calls(self) -> Iterator[tuple[Callable[..., Any], tuple[int, ...], int]]:
        """Yield each function to call, with the slots of its arguments and that of its result."""
        for index, node in self.nodes.items():
            relu = self._relu(node)
            if relu and relu.operand in self.fused:
                self.aliases[index] = relu.operand.index
            elif node.kind != "tensor" or self.uses[index]:
                function, inputs = self._call(index, node)
                yield function, tuple(self.aliases.get(slot.index, slot.index) for slot in inputs), index

    def _call(self, index: int, node: Node) -> tuple[Callable[..., Any], tuple[Slot, ...]]:
        relu = self._relu(node)
        if relu and self._is_fresh(relu.operand):
            return partial(relu_, ceiling=relu.ceiling), (relu.operand,)
        if node.function in SUMS and len(node.args) == 2 and not node.kwargs:
            first, second = node.args
            if self._is_fresh(second) and not self._is_fresh(first):
                first, second = second, first
            if self._is_fresh(first):
                return _with_arguments(_add_, (first, second), {})
        if self._is_fusible(node):
            layer = cast(FusibleNorm, self._layer(node))
            if Slot(index) in self.fused:
                return partial(_norm_relu, layer, self.batches, self.fused[Slot(index)].ceiling), node.operands
            if self.batches > 1:
                return partial(_norm_each, layer, self.batches), node.operands
        return _with_arguments(self._function(node), node.args, dict(node.kwargs))

    def _function(self, node: Node) -> Callable[..., Any]:
        if node.kind == "module":
            layer = self._layer(node)
            return partial(frozen_conv, cast(nn.Conv2d, layer)) if can_freeze(layer) else layer
        if node.kind == "tensor":
            parent, _, name = node.target.rpartition(".")
            return partial(getattr, self.network.get_submodule(parent), name)
        if node.kind == "attribute":
            return operator.attrgetter(node.target)
        if node.kind == "method":
            reshapes = is_reshaping_view(node, self.program, self.network)
            return partial(_call_method, "reshape" if reshapes else node.target)
        assert node.function is not None
        plain = node.function in CONVOLUTIONS and len(node.args) > 1  # not with the input by its name
        return conv2d if plain else node.function

    def _layer(self, node: Node) -> nn.Module:
        return self.network.get_submodule(node.target)

    def _is_fusible(self, node: Node) -> bool:
        return node.kind == "module" and type(self._layer(node)) in FUSIBLE and _is_call_on_one(node)

    def _is_fresh(self, operand: object) -> bool:
        """Tell whether an operand is new memory that nothing else reads and no backward pass needs."""
        if not isinstance(operand, Slot) or operand.index == 0 or self.uses[operand.index] != 1:
            return False
        node = self.nodes[operand.index]
        if node.kind == "module":
            layer = self._layer(node)
            return type(layer) in ALLOCATING and not has_hooks(layer)
        if node.function is operator.iadd:
            return self._is_fresh(node.args[0])
        return node.function in SUMS and not node.kwargs

    def _relu(self, node: Node) -> "_ReLU | None":
        """Return what a ReLU does, None for another operation."""
        if node.kind == "module":
            layer = self._layer(node)
            ceiling = None if has_hooks(layer) else RELU_LAYERS.get(type(layer))
        elif node.kind == "method":
            ceiling = math.inf if node.target in {"relu", "relu_"} else None
        else:
            ceiling = RELUS.get(node.function)
        return _ReLU(node.operands[0], ceiling) if ceiling is not None and len(node.operands) == 1 else None


class _ReLU(NamedTuple):
    operand: Slot
    ceiling: float


def _is_call_on_one(node: Node) -> bool:
    return len(node.args) == 1 and isinstance(node.args[0], Slot) and not node.kwargs


def _with_arguments(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], tuple[Slot, ...]]:
    """Return a function of the slots alone, and the slots."""
    if not kwargs and all(isinstance(arg, Slot) for arg in args):
        return function, args
    node = Node("function", function, args, tuple(kwargs.items()))
    return partial(_call_filled, function, args, kwargs), node.operands


def _call_filled(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *values: Any) -> Any:
    given = iter(values)
    return function(*_fill(args, given), **_fill(kwargs, given))


def _fill(template: Any, values: Iterator[Any]) -> Any:
    """Replace the slots of an argument by values, in the order of :func:`ttc.fast.symbol.slots`."""
    kind = type(template)
    if kind is Slot:
        return next(values)
    if kind is tuple or kind is list:
        return kind(_fill(item, values) for item in template)
    if kind is dict:
        return {key: _fill(item, values) for key, item in template.items()}
    if kind is slice:
        return slice(*(_fill(part, values) for part in (template.start, template.stop, template.step)))
    return template


def _call_method(name: str, operand: Any, *args: Any, **kwargs: Any) -> Any:
    return getattr(operand, name)(*args, **kwargs)


def _add_(fresh: Any, other: Any) -> Any:
    """Add into ``fresh`` where that gives the shape and type of the sum."""
    if not isinstance(fresh, Tensor):
        return fresh + other
    if isinstance(other, Tensor) and (other.shape != fresh.shape or other.dtype != fresh.dtype):
        return fresh + other
    return fresh.add_(other)


def _norm_relu(layer: FusibleNorm, batches: int, ceiling: float, x: Tensor) -> Tensor:
    if batches == 1 and is_large(x):
        if isinstance(layer, PooledNorm):
            return layer.forward_relu(x, ceiling)
        if layer.weight is not None and not layer.processes.active and layer.has_variance(x):
            return norm_relu(x, layer.weight, layer.bias, layer.eps, ceiling)
    return relu_(_norm_each(layer, batches, x), ceiling)


def _norm_each(layer: FusibleNorm, batches: int, x: Tensor) -> Tensor:
    """Normalize each of several batches with its own statistics."""
    if batches == 1:
        return layer.forward(x)
    return torch.cat([layer.forward(batch) for batch in x.chunk(batches)])
