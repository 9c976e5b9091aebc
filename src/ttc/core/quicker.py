"""The same network in a form that runs faster: activations in place of what they replace, or compiled."""

import operator
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ttc.core.lean import FrozenConv, can_freeze, relu_
from ttc.core.normalization import BatchNorm, NamedNorm
from ttc.core.replacement import put

Run = Callable[[Tensor], Any]
NORMS = (NamedNorm, _BatchNorm)
RELUS = {F.relu, torch.relu}
SUMS = {operator.add, operator.iadd, torch.add}


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, NORMS) or hasattr(m, "leaf") or super().is_leaf_module(m, module_qualified_name)


def in_place(network: nn.Module) -> Run | None:
    """``network`` with sums and ReLUs written over their operand where nobody else reads it; None if it has no graph.

    The operand is always fresh: what a BatchNorm returned, or a sum of it, neither of which the backward pass needs.
    That spares an allocation and a pass over memory a layer, and changes no value. The layers are shared, not copied;
    those that normalize by the batch are told to rectify, which leaves ``network`` as it was: a ReLU follows anyway.

    >>> network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval()
    >>> run, x = in_place(network), torch.rand(2, 3, 8, 8)
    >>> bool((run(x) == network(x)).all())
    True
    """
    if any(_hooked(module) for module in network.modules()):
        return None
    try:
        graph = _Tracer().trace(network)
    except Exception:  # a forward that decides by the values it sees, or does what a trace cannot follow
        return None
    layers: dict[str, nn.Module] = dict(network.named_modules())

    def fresh(node: object) -> bool:
        """Whether nobody else reads the output of this layer or sum."""
        if not isinstance(node, fx.Node) or len(node.users) != 1:
            return False
        if node.op == "call_function":
            return node.target in SUMS and any(fresh(operand) for operand in node.args)
        return node.op == "call_module" and isinstance(layers[str(node.target)], NORMS)

    calls = Counter(node.target for node in graph.nodes if node.op == "call_module")
    rectified = []
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in SUMS and len(node.args) == 2 and not node.kwargs:
            first, second = node.args
            if fresh(first) or fresh(second):
                with graph.inserting_before(node):
                    _put(node, graph.call_method("add_", (first, second) if fresh(first) else (second, first)))
        elif _is_relu(node, layers):
            (before,) = node.all_input_nodes
            layer = layers.get(str(before.target))
            if fresh(before) and type(layer) is BatchNorm and calls[before.target] == 1:
                rectified.append(layer)
                _put(node, before)
            elif fresh(before) or (before.target == "add_" and len(before.users) == 1):
                with graph.inserting_before(node):
                    _put(node, graph.call_function(relu_, (before,)))
    for layer in rectified:
        layer.rectify = True
    made = fx.GraphModule(network, graph)
    for name in calls:
        layer = layers[str(name)]
        if isinstance(layer, nn.Conv2d) and can_freeze(layer):
            put(made, str(name), FrozenConv(layer))
    return made


def compiled(network: nn.Module) -> Run:
    """``network`` compiled by ``torch.compile``, at the first call for each shape of images."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's own, of what its compiler uses
        run: Run = torch.compile(network, dynamic=False)
    return run


def _hooked(module: nn.Module) -> bool:
    """Whether a layer that a trace goes through carries hooks, which a trace would run once and lose."""
    inner = not isinstance(module, NORMS) and next(module.children(), None) is not None
    return inner and bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)


def _put(node: fx.Node, other: fx.Node) -> None:
    node.replace_all_uses_with(other)
    node.graph.erase_node(node)


def _is_relu(node: fx.Node, layers: dict[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return type(layers[str(node.target)]) is nn.ReLU
    return node.op == "call_function" and node.target in RELUS
