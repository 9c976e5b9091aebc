"""The memory layout in which a network runs: channels last, where processors convolve faster."""

import torch
from torch import nn

from ttc.fast.graph import Program
from ttc.fast.per_sample import has_foreign_hooks
from ttc.fast.rewrites import is_reshaping_view
from ttc.fast.selective_backward import CachingConv
from ttc.fast.symbol import Node
from ttc.nn.normalization import StatisticsNorm

STRIDED = {  # methods and functions whose result depends on the layout, or that fail on some
    *("view", "view_as", "as_strided", "as_strided_", "stride", "is_contiguous", "data_ptr", "storage", "set_"),
    *("untyped_storage", "storage_offset", "view_as_complex", "view_as_real"),
}


def allows_channels_last(program: Program, network: nn.Module, *, with_views: bool = False) -> bool:
    """Tell whether a network computes the same with its input and weights channels last.

    Args:
        program: The program of ``network``.
        network: Where the layers are looked up.
        with_views: Whether the network itself runs, whose views are not reshaped as those of its program are.
    """
    # Group normalization crashes on channels last, in torch 2.13, when its input needs no gradient.
    if any(isinstance(module, nn.GroupNorm) for module in network.modules()):
        return False
    if with_views and any(node.target == "view" for node in program.nodes):
        return False
    return all(_ignores_layout(node, program, network) for node in program.nodes)


def set_layout_(network: nn.Module, layout: torch.memory_format) -> None:
    """Store the weights of convolutions in a memory layout, in place."""
    for parameter in network.parameters():
        if parameter.ndim == 4:
            parameter.data = parameter.data.contiguous(memory_format=layout)


def _ignores_layout(node: Node, program: Program, network: nn.Module) -> bool:
    if node.kind == "module":
        layer = network.get_submodule(node.target)
        ours = isinstance(layer, StatisticsNorm | CachingConv)
        return (ours or type(layer).__module__.startswith("torch.nn.")) and not has_foreign_hooks(layer)
    name = str(getattr(node.target, "__name__", node.target))
    return name not in STRIDED or is_reshaping_view(node, program, network)
