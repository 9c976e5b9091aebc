"""A forward pass repeated for the selected samples of a batch with cached activations, without new convolutions.

With the statistics of the batch as constants, the gradient of a sample does not depend on the others. So a batch goes
forward without gradients while convolutions cache their outputs and normalization layers their statistics; then the
selected rows go forward again, with gradients, from the caches. Only their gradients pass the convolutions.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ttc.fast.low_memory import can_freeze, convolve, frozen_conv, with_conv_gradient
from ttc.nn.normalization import BatchStatisticsNorm


class CachingConv(nn.Module):
    """A frozen convolution that caches its outputs while ``caching``, and reuses ``rows`` of them.

    Args:
        layer: The convolution to replace, whose parameters are shared.
    """

    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        self.stride, self.dilation, self.groups = layer.stride, layer.dilation, layer.groups
        assert not isinstance(layer.padding, str)
        self.padding = layer.padding
        self.caching = False
        self.rows: Tensor | None = None
        self.cache: list[tuple[Tensor, int]] = []  # each output with its version

    def forward(self, x: Tensor) -> Tensor:
        """Convolve ``x``, or look its convolution up if ``x`` are rows of a batch seen before."""
        if self.rows is not None:
            output, version = self.cache.pop(0)
            if output._version == version:
                return with_conv_gradient(self, x, _select_rows(output, self.rows))
            return frozen_conv(self, x)  # the network wrote over the output
        if not self.caching:
            return frozen_conv(self, x)
        output = convolve(self, x)
        self.cache.append((output, output._version))
        return output


class CachingNorm(BatchStatisticsNorm):
    """Caches the statistics of batches while ``caching``, and reuses them as constants while ``reusing``.

    Args:
        layer: The layer to replace, whose parameters are shared.
    """

    shares_stream = False

    def __init__(self, layer: "_BatchNorm | BatchStatisticsNorm") -> None:
        super().__init__(layer)
        self.caching = self.reusing = False
        self.cache: list[tuple[Tensor, Tensor]] = []

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x`` as one batch, or as rows of the batch whose statistics were cached."""
        if self.reusing:
            mean, variance = self.cache.pop(0)
            return F.batch_norm(x, mean, variance, self.weight, self.bias, False, 0.0, self.eps)
        if not self.caching:
            return super().forward(x)
        if not self.has_variance(x):
            assert self.mean is not None
            assert self.variance is not None
            self.cache.append((self.mean, self.variance))
            return self.normalize_with_stored(x)
        y, mean, scale = torch.native_batch_norm(x, self.weight, self.bias, None, None, True, 0.0, self.eps)
        self.cache.append((mean, scale.pow(-2) - self.eps))
        return y


def make_selective_(network: nn.Module) -> None:
    """Replace the convolutions and batch normalizations of a network by layers with caches, in place."""
    for name, layer in list(network.named_modules()):
        if isinstance(layer, nn.Conv2d) and can_freeze(layer):
            network.set_submodule(name, CachingConv(layer))
        elif type(layer) is BatchStatisticsNorm:
            network.set_submodule(name, CachingNorm(layer))


@contextmanager
def cache_activations(network: nn.Module) -> Iterator[None]:
    """Cache what is computed inside, for :func:`reuse_activations`; earlier caches are emptied."""
    layers = _caching_layers(network)
    for layer in layers:
        layer.cache, layer.caching = [], True
    try:
        yield
    finally:
        for layer in layers:
            layer.caching = False


@contextmanager
def reuse_activations(network: nn.Module, rows: Tensor) -> Iterator[None]:
    """Let the passes inside reuse the caches, then empty those.

    Args:
        network: A network with caching layers.
        rows: The indices of the samples that are passed, in every batch seen under :func:`cache_activations`; the
            batches come in that order again.
    """
    layers = _caching_layers(network)
    for layer in layers:
        if isinstance(layer, CachingConv):
            layer.rows = rows
        else:
            layer.reusing = True
    try:
        yield
    finally:
        for layer in layers:
            layer.cache = []
            if isinstance(layer, CachingConv):
                layer.rows = None
            else:
                layer.reusing = False


def _select_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Select rows of a batch in its own memory layout, which ``index_select`` would not preserve."""
    if not x.is_contiguous(memory_format=torch.channels_last):
        return x.index_select(0, rows)
    return x.permute(0, 2, 3, 1).index_select(0, rows).permute(0, 3, 1, 2)


def _caching_layers(network: nn.Module) -> list[CachingConv | CachingNorm]:
    return [layer for layer in network.modules() if isinstance(layer, CachingConv | CachingNorm)]
