"""A forward pass that can be taken up again for some of its samples, without convolving anew.

With the statistics of the batch held constant, a sample's gradient does not depend on the others. So a batch goes
forward without gradients while convolutions keep their outputs and normalization layers their statistics; then the
rows to learn from go forward again, with gradients, taking those up. Only their gradients pass the convolutions.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ttc.fast.low_memory import FrozenConv, can_freeze
from ttc.nn.normalization import BatchStatisticsNorm


class CachingConv(FrozenConv):
    """A frozen convolution that keeps its outputs while ``keeping``, and takes up rows of them."""

    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__(layer)
        self.keeping = False
        self.rows: Tensor | None = None
        self.kept: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        if self.rows is not None:
            return self.known(x, _rows(self.kept.pop(0), self.rows))
        y = super().forward(x)
        if self.keeping:
            self.kept.append(y)
        return y


class CachingNorm(BatchStatisticsNorm):
    """BN-BATCH that keeps the batch's statistics while ``keeping``, and takes them up as constants."""

    def __init__(self, layer: "_BatchNorm | BatchStatisticsNorm") -> None:
        super().__init__(layer)
        self.keeping = self.taking = False
        self.kept: list[tuple[Tensor, Tensor]] = []

    def forward(self, x: Tensor) -> Tensor:
        """``x`` as one batch, or as rows of the batch whose statistics were kept."""
        if self.taking:
            mean, variance = self.kept.pop(0)
            return F.batch_norm(x, mean, variance, self.weight, self.bias, False, 0.0, self.eps)
        if not self.keeping:
            return super().forward(x)
        if not self.has_variance(x):
            assert self.mean is not None
            assert self.variance is not None
            self.kept.append((self.mean, self.variance))
            return self.normalize_with_stored(x)
        y, mean, scale = torch.native_batch_norm(x, self.weight, self.bias, None, None, True, 0.0, self.eps)
        self.kept.append((mean, scale.pow(-2) - self.eps))
        return y


def make_selective_(network: nn.Module) -> None:
    """Put layers that remember in the place of the convolutions and batch normalizations of a network, in place."""
    for name, layer in list(network.named_modules()):
        if isinstance(layer, nn.Conv2d) and can_freeze(layer):
            network.set_submodule(name, CachingConv(layer))
        elif type(layer) is BatchStatisticsNorm:
            network.set_submodule(name, CachingNorm(layer))


@contextmanager
def cache_activations(network: nn.Module) -> Iterator[None]:
    """Keep what is computed inside, for :func:`reuse_activations`; what is kept by then and not taken up is forgotten."""
    layers = _layers(network)
    for layer in layers:
        layer.kept, layer.keeping = [], True
    try:
        yield
    finally:
        for layer in layers:
            layer.keeping = False


@contextmanager
def reuse_activations(network: nn.Module, rows: Tensor) -> Iterator[None]:
    """Let the passes inside, over ``rows`` of the batches seen under :func:`cache_activations` and in that order, take those up."""
    layers = _layers(network)
    for layer in layers:
        if isinstance(layer, CachingConv):
            layer.rows = rows
        else:
            layer.taking = True
    try:
        yield
    finally:
        for layer in layers:
            layer.kept = []
            if isinstance(layer, CachingConv):
                layer.rows = None
            else:
                layer.taking = False


def _rows(x: Tensor, rows: Tensor) -> Tensor:
    """Rows of a batch in its own layout, which ``index_select`` would not keep."""
    if not x.is_contiguous(memory_format=torch.channels_last):
        return x.index_select(0, rows)
    return x.permute(0, 2, 3, 1).index_select(0, rows).permute(0, 3, 1, 2)


def _layers(network: nn.Module) -> list[CachingConv | CachingNorm]:
    return [layer for layer in network.modules() if isinstance(layer, CachingConv | CachingNorm)]
