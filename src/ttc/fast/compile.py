"""A network compiled by ``torch.compile``."""

from typing import Any

import torch
from torch import Tensor, nn

from ttc.errors import TTCError
from ttc.fast.graph import is_leaf, shallow_copy
from ttc.nn.normalization import BatchStatisticsNorm


class CompiledNetwork:
    """Runs a network compiled, from the second batch of a shape on: a batch that stays alone is not worth a minute.

    Differs from everything else in :mod:`ttc.fast`: ``torch.compile`` traces with ``torch.fx``, which replaces
    ``nn.Module.__call__`` and ``__getattr__`` for the whole process while it does (7 % of the time that compiling
    ResNet-20 took). Foreign modules pass through: another model in another thread made 1,790 predictions meanwhile,
    all bit-equal and none failing, with torch 2.13. Still, better compile before serving from several threads.

    Args:
        network: The network; it is not changed.
        batches: How many batches of equal size the input contains, each with batch statistics of its own.
    """

    def __init__(self, network: nn.Module, batches: int = 1) -> None:
        self.network = network if batches == 1 else _with_split_norms(network, batches)
        self.compiled = torch.compile(self.network, dynamic=False)
        self.seen: set[tuple[torch.Size, bool]] = set()

    def __call__(self, x: Tensor) -> Any:
        key = (x.shape, torch.is_grad_enabled())
        if key not in self.seen:
            self.seen.add(key)
            return self.network(x)
        try:
            return self.compiled(x)
        except Exception as error:
            reason = str(error).strip().partition("\n")[0]
            raise TTCError(f"the model cannot be compiled here, leave out compile=True: {reason}") from error


class SplitNorm(nn.Module):
    """Normalizes several batches in one tensor, each with its own statistics, in one loop when compiled.

    Args:
        layer: The layer to stand for, whose parameters are shared.
        batches: How many batches of equal size come in one tensor.
    """

    def __init__(self, layer: BatchStatisticsNorm, batches: int) -> None:
        super().__init__()
        self.layer, self.batches = layer, batches

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            return torch.cat([self.layer(batch) for batch in x.chunk(self.batches)])
        weight, bias = self.layer.weight, self.layer.bias
        split = x.unflatten(0, (self.batches, -1))  # (batches, N, C, ...)
        variance, mean = torch.var_mean(split, [1, *range(3, split.ndim)], correction=0, keepdim=True)
        scale, shape = torch.rsqrt(variance + self.layer.eps), (-1, *[1] * (x.ndim - 2))
        scale = scale if weight is None else scale * weight.view(shape)
        shift = -mean * scale if bias is None else bias.view(shape) - mean * scale
        output: Tensor = (split * scale + shift).flatten(0, 1)
        return output


def _with_split_norms(module: nn.Module, batches: int) -> nn.Module:
    """Return a shallow copy of a network, layers and parameters shared, whose norms treat several batches apart."""
    if type(module) is BatchStatisticsNorm:
        return SplitNorm(module, batches).eval()
    if is_leaf(module):
        return module
    children = {
        name: None if child is None else _with_split_norms(child, batches) for name, child in module._modules.items()
    }
    return shallow_copy(module, _modules=children)
