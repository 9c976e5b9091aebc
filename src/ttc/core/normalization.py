"""Batch normalization with named statistics: source, batch, blend, track, robust, average.

Each layer takes over weight, bias, eps and the source statistics of a ``BatchNorm``; ``train()`` and ``eval()`` make no
difference to it. With one value a channel (N·H·W = 1) a batch has no variance: the layer then keeps to the statistics
it holds, with a warning.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ttc.core.lean import is_large, norm_relu
from ttc.errors import TTCError


class NamedNorm(nn.Module):
    """What the replaced layers share: the affine map and the source mean and variance, each (C,)."""

    mean: Tensor | None
    variance: Tensor | None

    def __init__(self, layer: "_BatchNorm | NamedNorm") -> None:
        super().__init__()
        self.num_features: int = layer.num_features
        self.eps: float = layer.eps
        self.weight: nn.Parameter | None = layer.weight
        self.bias: nn.Parameter | None = layer.bias
        self.register_buffer("mean", layer.mean if isinstance(layer, NamedNorm) else layer.running_mean)
        self.register_buffer("variance", layer.variance if isinstance(layer, NamedNorm) else layer.running_var)

    def held(self, x: Tensor) -> Tensor:
        """``x`` normalized with the statistics the layer holds, as constants."""
        return F.batch_norm(x, self.mean, self.variance, self.weight, self.bias, False, 0.0, self.eps)

    def has_variance(self, x: Tensor) -> bool:
        """Whether the batch has more than one value a channel; if not, says so once."""
        if x.numel() > x.shape[1]:
            return True
        if self.mean is None:
            raise TTCError("a batch of one value a channel has no variance, and the layer has no source statistics")
        warnings.warn(
            "a normalization layer got one value a channel (a batch of one image): it used its stored statistics; "
            "give larger batches",
            stacklevel=2,
        )
        return False

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}"


class BatchNorm(NamedNorm):
    """BN-BATCH: the mean and biased variance of the current batch, nothing remembered.

    ``batches`` tells how many batches come in one tensor: each is then normalized by itself. ``rectify`` adds the
    ReLU that follows in the network.
    """

    def __init__(self, layer: "_BatchNorm | NamedNorm") -> None:
        super().__init__(layer)
        self.batches, self.rectify = 1, False

    def forward(self, x: Tensor) -> Tensor:
        if self.rectify:
            if self.batches == 1 and is_large(x) and self.weight is not None and self.has_variance(x):
                return norm_relu(x, self.weight, self.bias, self.eps)
            return self._forward(x).relu_()
        return self._forward(x)

    def _forward(self, x: Tensor) -> Tensor:
        if self.batches == 1:
            return self.normalized(x)
        if torch.compiler.is_compiling():  # one loop for all; uncompiled it would be several passes over memory
            return self._normalized_apart(x)
        return torch.cat([self.normalized(batch) for batch in x.chunk(self.batches)])

    def _normalized_apart(self, x: Tensor) -> Tensor:
        apart = x.unflatten(0, (self.batches, -1))  # (batches, N, C, ...)
        variance, mean = torch.var_mean(apart, [1, *range(3, apart.ndim)], correction=0, keepdim=True)
        scale, shape = torch.rsqrt(variance + self.eps), (-1, *[1] * (x.ndim - 2))
        scale = scale if self.weight is None else scale * self.weight.view(shape)
        shift = -mean * scale if self.bias is None else self.bias.view(shape) - mean * scale
        answer: Tensor = (apart * scale + shift).flatten(0, 1)
        return answer

    def normalized(self, x: Tensor) -> Tensor:
        """``x`` as one batch."""
        if not self.has_variance(x):
            return self.held(x)
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


class BlendNorm(NamedNorm):
    """BN-BLEND(α): ``(1-α)·source + α·batch`` for mean and (unbiased) variance, nothing remembered.

    Give ``alpha``, or ``source_pseudo_count`` N_s, and α = N / (N + N_s) follows the size N of each batch.
    The (μ_s - μ_t)² term of a true mixture variance is left out, as in every public implementation.
    """

    def __init__(
        self, layer: _BatchNorm, *, alpha: float | None = None, source_pseudo_count: float | None = None
    ) -> None:
        if (alpha is None) == (source_pseudo_count is None):
            raise TTCError("blended statistics take either alpha or source_pseudo_count, one of the two")
        if alpha is not None and not 0 <= alpha <= 1:
            raise TTCError(f"alpha is the weight of the batch and lies in [0, 1], got {alpha}")
        if source_pseudo_count is not None and source_pseudo_count < 0:
            raise TTCError(f"source_pseudo_count counts images and is not negative, got {source_pseudo_count}")
        super().__init__(layer)
        _require_source(self)
        self.alpha, self.source_pseudo_count = alpha, source_pseudo_count

    def forward(self, x: Tensor) -> Tensor:
        assert self.mean is not None
        assert self.variance is not None
        if not self.has_variance(x):
            return self.held(x)
        alpha = self.alpha if self.source_pseudo_count is None else len(x) / (len(x) + self.source_pseudo_count)
        assert alpha is not None
        mean, variance = _moments(x, unbiased=True)
        mean, variance = _between(self.mean, mean, alpha), _between(self.variance, variance, alpha)
        return _normalized(self, x, mean, variance)


class TrackNorm(NamedNorm):
    """BN-TRACK: normalizes with the batch while the held statistics follow; or with those, when not following.

    ``branches`` keeps that many sets of statistics for one affine map (TIPI has two). See :func:`tracking`.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, layer: _BatchNorm, *, momentum: float = 0.1, branches: int = 1) -> None:
        super().__init__(layer)
        _require_source(self)
        self.mean = self.mean.repeat(branches, 1)  # (branches, C)
        self.variance = self.variance.repeat(branches, 1)
        self.momentum, self.branch, self.following = momentum, 0, False

    def forward(self, x: Tensor) -> Tensor:
        mean, variance = self.mean[self.branch], self.variance[self.branch]  # views: batch_norm writes into them
        following = self.following and self.has_variance(x)
        return F.batch_norm(x, mean, variance, self.weight, self.bias, following, self.momentum, self.eps)


class RobustNorm(NamedNorm):
    """BN-ROBUST(α): ``s ← (1-α)·s + α·batch`` (biased variance), then normalizes with the updated s.

    The gradient flows through the α·batch part. When not following it normalizes with s as it is.
    """

    def __init__(self, layer: _BatchNorm, *, alpha: float = 0.05) -> None:
        super().__init__(layer)
        _require_source(self)
        self.alpha, self.following = alpha, False

    def forward(self, x: Tensor) -> Tensor:
        assert self.mean is not None
        assert self.variance is not None
        if not self.following:
            return self.held(x)
        mean, variance = _moments(x, unbiased=False)
        mean, variance = _between(self.mean, mean, self.alpha), _between(self.variance, variance, self.alpha)
        self.mean.copy_(mean.detach())
        self.variance.copy_(variance.detach())
        return _normalized(self, x, mean, variance)


class AverageNorm(NamedNorm):
    """BN-AVERAGE(w): an average over the images of the stream, each new one with weight w; normalizes with it.

    .. math:: s \\leftarrow (1-a)\\,s + a\\,\\text{batch}, \\quad a = 1 - (1-w)^N

    A batch of N counts as N images one by one, so answers hardly depend on N. The variance is the mixture's, to which
    the distance of the means adds a(1-a)(μ_s - μ_t)²: images taken singly differ in their means. Starts from the
    source's statistics, follows unless ``following`` is off, and gives no gradient through the statistics.
    """

    def __init__(self, layer: "_BatchNorm | NamedNorm", *, weight: float = 0.01) -> None:
        super().__init__(layer)
        _require_source(self)
        if not 0 <= weight <= 1:
            raise TTCError(f"the weight of an image in the average lies in [0, 1], got {weight}")
        self.image_weight, self.following = weight, True
        for name in ("mean", "variance"):  # own copies, precise enough for small weights
            held = getattr(self, name)
            setattr(self, name, held.to(torch.promote_types(held.dtype, torch.float32), copy=True))

    def forward(self, x: Tensor) -> Tensor:
        assert self.mean is not None
        assert self.variance is not None
        if self.following:
            self._follow(x.detach())
        return _normalized(self, x, self.mean, self.variance) if x.dtype != self.mean.dtype else self.held(x)

    @torch.no_grad()
    def _follow(self, x: Tensor) -> None:
        assert self.mean is not None
        assert self.variance is not None
        amount = 1 - (1 - self.image_weight) ** len(x)
        mean, variance = _moments(x, unbiased=False)
        apart = mean - self.mean
        # New tensors, not written in place: the backward pass of another view may still need the old ones.
        self.variance = self.variance.lerp(variance, amount).addcmul_(apart, apart, value=amount * (1 - amount))
        self.mean = self.mean.add(apart, alpha=amount)


@contextmanager
def tracking(model: nn.Module, *, branch: int = 0) -> Iterator[None]:
    """Let the tracking layers of ``model`` follow the batches on one branch of their statistics."""
    layers = [module for module in model.modules() if isinstance(module, TrackNorm | RobustNorm)]
    for layer in layers:
        layer.following = True
        if isinstance(layer, TrackNorm):
            layer.branch = branch
    try:
        yield
    finally:
        for layer in layers:
            layer.following = False
            if isinstance(layer, TrackNorm):
                layer.branch = 0


def following(model: nn.Module) -> bool:
    """Whether a forward pass may change statistics that the model remembers."""
    return any(isinstance(module, TrackNorm | RobustNorm | AverageNorm) for module in model.modules())


@contextmanager
def still(model: nn.Module) -> Iterator[None]:
    """Let no average of ``model`` follow what it is shown."""
    layers = [module for module in model.modules() if isinstance(module, AverageNorm) and module.following]
    for layer in layers:
        layer.following = False
    try:
        yield
    finally:
        for layer in layers:
            layer.following = True


def _require_source(layer: NamedNorm) -> None:
    if layer.mean is None or layer.variance is None:
        raise TTCError("these statistics start from the source's, but a BatchNorm of the model stores none")


def _moments(x: Tensor, *, unbiased: bool) -> tuple[Tensor, Tensor]:
    """Mean and variance a channel, each (C,), in float32 at least."""
    x = x.float() if x.dtype in {torch.float16, torch.bfloat16} else x
    variance, mean = torch.var_mean(x, dim=[0, *range(2, x.ndim)], correction=int(unbiased))
    return mean, variance


def _between(held: Tensor, new: Tensor, weight: float) -> Tensor:
    return torch.lerp(held.to(new), new, weight)


def _normalized(layer: NamedNorm, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    shape = (1, -1, *[1] * (x.ndim - 2))
    scale = torch.rsqrt(variance + layer.eps)
    if layer.weight is not None:
        scale = scale * layer.weight
    shift = -mean * scale if layer.bias is None else layer.bias - mean * scale
    return (x * scale.view(shape) + shift.view(shape)).to(x.dtype)
