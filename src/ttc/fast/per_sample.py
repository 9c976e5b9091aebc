"""Which programs treat every sample by itself, so that several batches can share one pass."""

import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ttc.core.classifier import Classifier
from ttc.fast.graph import Program, has_hooks
from ttc.fast.symbol import Node, Slot, slots
from ttc.nn.normalization import BatchStatisticsNorm, SourceNorm

LAYERS = {
    *(BatchStatisticsNorm, SourceNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
    *(nn.LayerNorm, nn.GroupNorm, nn.LocalResponseNorm, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear, nn.Identity),
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.Sigmoid),
    *(nn.Tanh, nn.Hardswish, nn.Hardsigmoid, nn.Hardtanh, nn.Softplus, nn.Dropout, nn.Dropout2d, nn.AlphaDropout),
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.AdaptiveAvgPool1d),
    *(nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.AdaptiveMaxPool2d, nn.ZeroPad2d, nn.ReflectionPad2d, nn.Upsample),
}
ELEMENTWISE = (
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.iadd, operator.imul, operator.neg),
    *(
        torch.add,
        torch.mul,
        torch.relu,
        torch.sigmoid,
        torch.tanh,
        F.relu,
        F.relu6,
        F.leaky_relu,
        F.elu,
        F.gelu,
        F.silu,
    ),
    *(F.mish, F.sigmoid, F.hardswish, F.hardsigmoid, F.dropout, F.avg_pool2d, F.max_pool2d, F.adaptive_avg_pool2d),
    *(F.adaptive_max_pool2d, F.pad, F.interpolate),
)
ELEMENTWISE_METHODS = {"relu", "relu_", "sigmoid", "tanh", "abs", "contiguous", "add", "add_", "mul", "mul_"}
REDUCTIONS = (torch.mean, torch.sum, torch.amax)
REDUCTION_METHODS = {"mean", "sum", "amax"}


def is_per_sample(program: Program, network: nn.Module) -> bool:
    """Tell whether a program treats every sample by itself, but for batch statistics.

    Only operations known to do so count: an unknown layer or function makes it False.

    Args:
        program: The program of ``network``.
        network: Where the layers are looked up.

    Example:
        >>> from ttc.fast.graph import capture
        >>> network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 2)).eval()
        >>> is_per_sample(capture(network), network)
        True
    """
    return all(_is_known(node, program, network) for node in program.nodes)


def _is_known(node: Node, program: Program, network: nn.Module) -> bool:
    sizes = [slot for slot in node.operands if _is_size(slot, program)]
    name = node.target if node.kind == "method" else None
    if node.kind == "tensor" or (node.kind == "attribute" and node.target == "shape") or name == "size":
        return True
    if node.function is torch.reshape or name in {"view", "reshape"}:
        shape = node.args[1] if len(node.args) == 2 else node.args[1:]
        return isinstance(shape, tuple) and len(sizes) == 1 and _is_batch_size(shape[0], program)
    if node.function is operator.getitem:
        return _is_known_index(node, program)
    if sizes:  # one of them may be the number of samples
        return False
    if node.kind == "module":
        return _is_known_layer(network.get_submodule(node.target))
    return node.function in ELEMENTWISE or name in ELEMENTWISE_METHODS or _is_known_reduction(node)


def _is_known_reduction(node: Node) -> bool:
    name = node.target if node.kind == "method" else None
    if node.function in REDUCTIONS or name in REDUCTION_METHODS:
        return _spares_samples(_argument(node, "dim", None))
    if node.function is torch.flatten or name == "flatten":
        return bool(_argument(node, "start_dim", 0) >= 1)
    return node.function is torch.cat and bool(_argument(node, "dim", 0) == 1)


def _is_known_layer(layer: nn.Module) -> bool:
    if has_foreign_hooks(layer):
        return False
    if isinstance(layer, nn.Flatten):
        return layer.start_dim >= 1
    if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.running_mean is None:
        return False  # torch's own layer, on the statistics of everything that it gets
    return type(layer) in LAYERS


def has_foreign_hooks(layer: nn.Module) -> bool:
    """Tell whether a layer has hooks other than the one with which a classifier reads its features."""
    hooks = list(layer._forward_pre_hooks.values())
    own = all(isinstance(getattr(hook, "__self__", None), Classifier) for hook in hooks)
    return has_hooks(layer) and not (own and not (layer._forward_hooks or layer._backward_hooks))


def _argument(node: Node, name: str, default: Any) -> Any:
    """Return the first argument after the operand."""
    return node.args[1] if len(node.args) > 1 else dict(node.kwargs).get(name, default)


def _spares_samples(dim: object) -> bool:
    """Tell whether a reduction leaves the first dimension alone."""
    dims = dim if isinstance(dim, tuple | list) else (dim,)
    return bool(dims) and all(isinstance(item, int) and (item >= 1 or item == -1) for item in dims)


def _is_known_index(node: Node, program: Program) -> bool:
    operand, index = node.args
    if not isinstance(operand, Slot) or next(slots(index), None) is not None:
        return False
    return _is_size(operand, program) or (isinstance(index, tuple) and index[0] == slice(None))


def _is_size(operand: Slot, program: Program) -> bool:
    """Tell whether a value is the shape of a tensor or a part of that."""
    if operand.index == 0:
        return False
    node = program.nodes[operand.index - 1]
    if node.kind in {"attribute", "method"}:
        return node.target in {"shape", "size"}
    return node.function is operator.getitem and _is_size(node.args[0], program)


def _is_batch_size(operand: object, program: Program) -> bool:
    """Tell whether a value is the number of samples, as in ``x.size(0)`` or ``x.shape[0]``."""
    if not isinstance(operand, Slot) or not _is_size(operand, program):
        return False
    node = program.nodes[operand.index - 1]
    return node.kind != "attribute" and node.args[1:] == (0,) and node.kwargs == ()
