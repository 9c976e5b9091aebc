"""Batch normalization with named statistics: those of the source, of the batch, or a blend of both.

Each layer takes over weight, bias, eps and the source statistics of a ``BatchNorm``; ``train()`` and ``eval()`` make no
difference to it. With one value per channel (N·H·W = 1) a batch has no variance: the layer then uses its stored
statistics, with a warning.

Those that follow the stream are in :mod:`ttc.nn.stream_statistics`.
"""

import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ttc.core.statistics import StatisticsLayer
from ttc.errors import TTCError


class StatisticsNorm(StatisticsLayer):
    """What these layers share: the affine map and a stored mean and variance, each (C,).

    Args:
        layer: The layer to replace, whose parameters are shared.
    """

    mean: Tensor | None
    variance: Tensor | None

    def __init__(self, layer: "_BatchNorm | StatisticsNorm") -> None:
        super().__init__()
        self.num_features: int = layer.num_features
        self.eps: float = layer.eps
        self.weight: nn.Parameter | None = layer.weight
        self.bias: nn.Parameter | None = layer.bias
        self.register_buffer("mean", layer.mean if isinstance(layer, StatisticsNorm) else layer.running_mean)
        self.register_buffer("variance", layer.variance if isinstance(layer, StatisticsNorm) else layer.running_var)

    def normalize_with_stored(self, x: Tensor) -> Tensor:
        """Normalize ``x`` with the stored statistics, as constants."""
        return F.batch_norm(x, self.mean, self.variance, self.weight, self.bias, False, 0.0, self.eps)

    def keep_source_(self) -> None:
        """Copy the stored statistics as the reference of :mod:`ttc.nn.plausibility`, no part of the state."""
        assert self.mean is not None
        assert self.variance is not None
        self.source_mean, self.source_variance = self.mean.detach().clone(), self.variance.detach().clone()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "StatisticsNorm":  # called by Module.to
        for name in ("source_mean", "source_variance"):  # no buffers: a state_dict must not contain them
            if name in vars(self):
                setattr(self, name, fn(getattr(self, name)))
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def fixed_statistics(self, x: Tensor | None) -> tuple[Tensor, Tensor] | None:
        """Return the stored mean and variance; a layer that uses the batch defines its own."""
        assert self.mean is not None
        assert self.variance is not None
        return self.mean, self.variance

    def moments(self, x: Tensor, *, unbiased: bool) -> tuple[Tensor, Tensor]:
        """Return mean and variance per channel of the batch, each (C,), in float32 at least.

        With shards of the batch in several processes, they are combined, with gradients to all of them.
        """
        mean, variance = _moments(x, unbiased=unbiased and not self.processes.active)
        if not self.processes.active:
            return mean, variance
        means, variances = self.processes.stack(torch.stack([mean, variance])).double().unbind(1)  # (P, C) each
        weights = torch.tensor(self.processes.fractions(), dtype=means.dtype, device=means.device)[:, None]
        total = (weights * means).sum(0)
        spread = (weights * (variances + (means - total).square())).sum(0)
        count = self._count_values(x)
        return total.to(mean.dtype), (spread * (count / (count - 1)) if unbiased else spread).to(mean.dtype)

    def _count_values(self, x: Tensor) -> int:
        """Return the values per channel in the batch."""
        return self.processes.count_rows(x) * (x.numel() // (len(x) * x.shape[1]))

    def has_variance(self, x: Tensor) -> bool:
        """Tell whether the batch has more than one value per channel; warn if not."""
        if x.numel() > x.shape[1] if not self.processes.active else self._count_values(x) > 1:
            return True
        if self.mean is None:
            raise TTCError("a batch of one value per channel has no variance, and no source statistics are stored")
        warnings.warn(
            "a normalization layer got one value per channel (a batch of one image): it used its stored statistics; "
            "use larger batches",
            stacklevel=2,
        )
        return False

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}"


class SourceNorm(StatisticsNorm):
    """Normalizes with the mean and variance that the source model stored."""

    shares_stream = True

    def __init__(self, layer: "_BatchNorm | StatisticsNorm") -> None:
        super().__init__(layer)
        require_source(self)
        assert self.mean is not None
        assert self.variance is not None
        if self.mean.ndim > 1:  # one set of running statistics per branch: the first predicts
            self.mean, self.variance = self.mean[0], self.variance[0]
        if self.weight is not None:
            self.mean, self.variance = self.mean.to(self.weight.dtype), self.variance.to(self.weight.dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.normalize_with_stored(x)


class BatchStatisticsNorm(StatisticsNorm):
    """Normalizes with the mean and biased variance of the current batch; nothing is stored."""

    uses_batch = needs_large_batches = shares_stream = True

    def forward(self, x: Tensor) -> Tensor:
        if not self.has_variance(x):
            return self.normalize_with_stored(x)
        if self.processes.active:
            return normalize_with(self, x, *self.moments(x, unbiased=False))
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)

    def fixed_statistics(self, x: Tensor | None) -> tuple[Tensor, Tensor] | None:
        """Return the mean and the biased variance of the batch."""
        return None if x is None else self.moments(x, unbiased=False)


class BlendNorm(StatisticsNorm):
    """Normalizes with ``(1-α)·source + α·batch`` for mean and (unbiased) variance; nothing is stored.

    The (μ_s - μ_t)² term of a true mixture variance is left out, as in every public implementation.

    Args:
        layer: The layer to replace.
        alpha: The weight of the batch, in [0, 1].
        source_pseudo_count: N_s, in place of ``alpha``: α = N / (N + N_s) follows the size N of each batch. With both
            given, the smaller weight counts.
    """

    uses_batch = shares_stream = True

    def __init__(
        self,
        layer: "_BatchNorm | StatisticsNorm",
        *,
        alpha: float | None = None,
        source_pseudo_count: float | None = None,
    ) -> None:
        if alpha is None and source_pseudo_count is None:
            raise TTCError("blended statistics take alpha or source_pseudo_count, got neither")
        if alpha is not None and not 0 <= alpha <= 1:
            raise TTCError(f"alpha is the weight of the batch and lies in [0, 1], got {alpha}")
        if source_pseudo_count is not None and source_pseudo_count < 0:
            raise TTCError(f"source_pseudo_count counts images and is not negative, got {source_pseudo_count}")
        super().__init__(layer)
        require_source(self)
        self.alpha, self.source_pseudo_count = alpha, source_pseudo_count

    def forward(self, x: Tensor) -> Tensor:
        if not self.has_variance(x):
            return self.normalize_with_stored(x)
        return normalize_with(self, x, *self._blended(x))

    def fixed_statistics(self, x: Tensor | None) -> tuple[Tensor, Tensor] | None:
        """Return the statistics of the batch blended with those of the source."""
        return None if x is None else self._blended(x)

    def _blended(self, x: Tensor) -> tuple[Tensor, Tensor]:
        assert self.mean is not None
        assert self.variance is not None
        rows, alpha = self.processes.count_rows(x), 1.0 if self.alpha is None else self.alpha
        if self.source_pseudo_count is not None:
            alpha = min(alpha, rows / (rows + self.source_pseudo_count))
        mean, variance = self.moments(x, unbiased=True)
        return blend(self.mean, mean, alpha), blend(self.variance, variance, alpha)


def require_source(layer: StatisticsNorm) -> None:
    """Check that a layer stores source statistics.

    Raises:
        TTCError: If it does not.
    """
    if layer.mean is None or layer.variance is None:
        raise TTCError(
            "a BatchNorm of the model stores no source statistics to start from; choose a method such as 'norm'"
        )


def _moments(x: Tensor, *, unbiased: bool) -> tuple[Tensor, Tensor]:
    """Return mean and variance per channel, each (C,), in float32 at least."""
    x = x.float() if x.dtype in {torch.float16, torch.bfloat16} else x
    if unbiased and not (x.requires_grad and torch.is_grad_enabled()):  # several times faster than var_mean on a CPU
        mean, variance = x.new_zeros(x.shape[1]), x.new_zeros(x.shape[1])
        F.batch_norm(x, mean, variance, training=True, momentum=1.0)  # fills them
        return mean, variance
    variance, mean = torch.var_mean(x, dim=[0, *range(2, x.ndim)], correction=int(unbiased))
    return mean, variance


def blend(stored: Tensor, new: Tensor, weight: float) -> Tensor:
    """Return the stored statistics moved towards new ones."""
    return torch.lerp(stored.to(new), new, weight)


def normalize_with(layer: StatisticsNorm, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Normalize ``x`` with statistics that gradients pass through, and the layer's affine map."""
    shape = (1, -1, *[1] * (x.ndim - 2))
    scale = torch.rsqrt(variance + layer.eps)
    if layer.weight is not None:
        scale = scale * layer.weight
    shift = -mean * scale if layer.bias is None else layer.bias - mean * scale
    return (x * scale.view(shape) + shift.view(shape)).to(x.dtype)
