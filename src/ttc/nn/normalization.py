"""Batch normalization with named statistics: source, batch, blend, running, exponential moving average, window.

Each layer takes over weight, bias, eps and the source statistics of a ``BatchNorm``; ``train()`` and ``eval()`` make no
difference to it. With one value per channel (N·H·W = 1) a batch has no variance: the layer then uses its stored
statistics, with a warning.

No batch can ruin what is stored: see :func:`source_energy` and :mod:`ttc.nn.outliers`.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ttc.core.statistics import StatisticsLayer
from ttc.errors import TTCError
from ttc.nn.outliers import Choice, initial_alternatives

PLAUSIBLE = 6.0  # the energy up to which a batch counts fully; single images at severity 5 stay below 4.7
ABSURD = 1e4  # the energy beyond which a batch is rejected: a hundred source standard deviations
ABSURD_WINDOW = 25.0  # the same where the images themselves are stored, so that their weight cannot be reduced


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
        """Copy the stored statistics as the reference of :func:`source_energy`: constants, no part of the state."""
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
        _require_source(self)
        assert self.mean is not None
        assert self.variance is not None
        if isinstance(layer, RunningNorm):
            self.mean, self.variance = layer.mean[0], layer.variance[0]
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
            return _normalize(self, x, *self.moments(x, unbiased=False))
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
        source_pseudo_count: N_s, in place of ``alpha``: α = N / (N + N_s) follows the size N of each batch.
    """

    uses_batch = shares_stream = True

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
        if not self.has_variance(x):
            return self.normalize_with_stored(x)
        return _normalize(self, x, *self._blended(x))

    def fixed_statistics(self, x: Tensor | None) -> tuple[Tensor, Tensor] | None:
        """Return the statistics of the batch blended with those of the source."""
        return None if x is None else self._blended(x)

    def _blended(self, x: Tensor) -> tuple[Tensor, Tensor]:
        assert self.mean is not None
        assert self.variance is not None
        rows = self.processes.count_rows(x)
        alpha = self.alpha if self.source_pseudo_count is None else rows / (rows + self.source_pseudo_count)
        assert alpha is not None
        mean, variance = self.moments(x, unbiased=True)
        return _blend(self.mean, mean, alpha), _blend(self.variance, variance, alpha)


class RunningNorm(StatisticsNorm):
    """Normalizes with the batch while tracking it in running statistics, else with the running statistics.

    Tracking is off but inside :func:`track_statistics`. An implausible batch counts less, an absurd one is rejected
    (:func:`update_weight`).

    Args:
        layer: The layer to replace.
        momentum: The weight of a new batch in the running statistics.
        branches: How many sets of running statistics to store for one affine map (TIPI uses two).
        bounded: Whether a batch that moves them far counts fully only if the next one confirms it
            (:mod:`ttc.nn.outliers`); for methods that show the layer each batch once per branch.
    """

    updates = shares_stream = True
    mean: Tensor
    variance: Tensor
    alternatives: Tensor | None

    def __init__(self, layer: _BatchNorm, *, momentum: float = 0.1, branches: int = 1, bounded: bool = False) -> None:
        super().__init__(layer)
        _require_source(self)
        self.keep_source_()
        self.mean = self.mean.repeat(branches, 1)  # (branches, C)
        self.variance = self.variance.repeat(branches, 1)
        self.momentum, self.branch, self.tracking = momentum, 0, False
        alternatives = initial_alternatives(self.mean, self.variance) if bounded else None  # (branches, 8, C)
        self.register_buffer("alternatives", alternatives)

    def forward(self, x: Tensor) -> Tensor:
        mean, variance = self.mean[self.branch], self.variance[self.branch]  # views
        if not (self.tracking and self.has_variance(x)):
            return F.batch_norm(x, mean, variance, self.weight, self.bias, False, self.momentum, self.eps)
        if self.processes.active:
            return self._normalize_and_store(x, mean, variance)
        batch = torch.zeros_like(mean), torch.zeros_like(variance)  # batch_norm with momentum 1 fills them
        normalized = F.batch_norm(x, *batch, self.weight, self.bias, True, 1.0, self.eps)
        self._store((mean, variance), batch)
        return normalized

    def _normalize_and_store(self, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """Do what ``batch_norm`` does, with the statistics of the shards of all processes."""
        batch_mean, batch_variance = self.moments(x, unbiased=False)
        count = self._count_values(x)
        unbiased = batch_variance * (count / (count - 1))
        self._store((mean, variance), (batch_mean.detach(), unbiased.detach()))
        return _normalize(self, x, batch_mean, batch_variance)

    @torch.no_grad()
    def _store(self, stored: tuple[Tensor, Tensor], batch: tuple[Tensor, Tensor]) -> None:
        """Update the stored statistics in place, by less if the batch is implausible."""
        amount = self.momentum * update_weight(self, *batch)
        if self.alternatives is None:
            after = stored[0].lerp(batch[0], amount), stored[1].lerp(batch[1], amount)
        else:
            choice = Choice(stored, self.alternatives[self.branch], batch, self.eps)
            after = choice.chosen[0].lerp(batch[0], amount), choice.chosen[1].lerp(batch[1], amount)
            self.alternatives[self.branch].copy_(choice.next_alternatives(after))
        for old, new in zip(stored, after, strict=True):
            old.copy_(new)

    def fixed_statistics(self, x: Tensor | None) -> tuple[Tensor, Tensor] | None:
        """Return the running statistics of the first branch, with which it predicts."""
        return self.mean[0], self.variance[0]


class RobustNorm(RunningNorm):
    """Normalizes with running statistics that a tracked batch updates first (RoTTA).

    .. math:: s \\leftarrow (1-\\alpha)\\,s + \\alpha\\,\\text{batch}

    with the biased variance of the batch. While tracking, gradients flow through the part α·batch.

    Args:
        layer: The layer to replace.
        momentum: α, the weight of a new batch.
    """

    shares_stream = False

    def __init__(self, layer: _BatchNorm, *, momentum: float = 0.05) -> None:
        super().__init__(layer, momentum=momentum)

    def forward(self, x: Tensor) -> Tensor:
        if not self.tracking or not self.has_variance(x):
            return F.batch_norm(x, self.mean[0], self.variance[0], self.weight, self.bias, False, 0.0, self.eps)
        mean, variance = self.moments(x, unbiased=False)
        mean, variance = _blend(self.mean[0], mean, self.momentum), _blend(self.variance[0], variance, self.momentum)
        # New tensors, not written in place: the backward pass may still need the old ones.
        self.mean, self.variance = mean.detach()[None].to(self.mean), variance.detach()[None].to(self.variance)
        return _normalize(self, x, mean, variance)


class EmaNorm(StatisticsNorm):
    """Normalizes with an exponential moving average over the images of the stream.

    .. math:: s \\leftarrow (1-a)\\,s + a\\,\\text{batch}, \\quad a = 1 - (1-w)^N

    A batch of N counts as N single images, so predictions hardly depend on N. The variance is the mixture's, to which
    the distance of the means adds a(1-a)(μ_s - μ_t)²: single images differ in their means. It starts from the source
    statistics, is updated unless ``tracking`` is off, and passes no gradient through the statistics. An implausible
    batch counts less, an absurd one is rejected (:func:`update_weight`), and an outlier that the next batch contradicts
    is undone but for a bounded move (:mod:`ttc.nn.outliers`).

    Args:
        layer: The layer to replace.
        weight: w, the weight of a new image.
    """

    updates = shares_stream = True
    alternatives: Tensor

    def __init__(self, layer: "_BatchNorm | StatisticsNorm", *, weight: float = 0.01) -> None:
        super().__init__(layer)
        _require_source(self)
        if not 0 <= weight <= 1:
            raise TTCError(f"the weight of an image in the average lies in [0, 1], got {weight}")
        self.image_weight, self.tracking = weight, True
        for name in ("mean", "variance"):  # own copies, precise enough for small weights
            stored = getattr(self, name)
            setattr(self, name, stored.to(torch.promote_types(stored.dtype, torch.float32), copy=True))
        self.keep_source_()
        self.register_buffer("alternatives", initial_alternatives(self.source_mean, self.source_variance))

    def forward(self, x: Tensor) -> Tensor:
        assert self.mean is not None
        assert self.variance is not None
        if self.tracking:
            self._track(x.detach())
        return (
            _normalize(self, x, self.mean, self.variance)
            if x.dtype != self.mean.dtype
            else self.normalize_with_stored(x)
        )

    @torch.no_grad()
    def _track(self, x: Tensor) -> None:
        assert self.mean is not None
        assert self.variance is not None
        images = self.processes.count_rows(x)
        amount = 1 - (1 - self.image_weight) ** images
        mean, variance = self.moments(x, unbiased=False)
        amount *= update_weight(self, mean, variance)
        current = self.mean, self.variance
        # A single image moves them too little to need confirmation, and differs from the next one by nature.
        choice = Choice(current, self.alternatives, (mean, variance), self.eps) if images > 1 else None
        before, variance_before = choice.chosen if choice else current
        apart = mean - before
        # New tensors, not written in place: the backward pass of another view may still need the old ones.
        self.variance = variance_before.lerp(variance, amount).addcmul_(apart, apart, value=amount * (1 - amount))
        self.mean = before.add(apart, alpha=amount)
        after = self.mean, self.variance
        self.alternatives = choice.next_alternatives(after) if choice else initial_alternatives(*after)


class WindowNorm(StatisticsNorm):
    """Normalizes with the statistics of a window of images; the source stands in for those that have not come yet.

    .. math:: s = (1-a)\\,s_{source} + a\\,\\text{batch}, \\quad a = N / \\text{places}

    with the variance of the mixture. From ``places`` images on it is the batch alone. While the window fills, no
    gradient passes through the statistics.

    Args:
        layer: The layer to replace.
        places: The number of images from which the batch alone is used.
    """

    uses_batch = shares_stream = True

    def __init__(self, layer: _BatchNorm | StatisticsNorm, *, places: int) -> None:
        super().__init__(layer)
        _require_source(self)
        self.keep_source_()
        self.places = places

    def forward(self, x: Tensor) -> Tensor:
        assert self.mean is not None
        assert self.variance is not None
        if self.processes.count_rows(x) >= self.places and self.has_variance(x):
            if self.processes.active:
                mean, variance = self.moments(x, unbiased=False)
                reject_absurd(self, mean.detach(), variance.detach(), ABSURD_WINDOW)
                return _normalize(self, x, mean, variance)
            mean, variance = torch.zeros_like(self.mean), torch.zeros_like(self.variance)  # momentum 1 fills them
            normalized = F.batch_norm(x, mean, variance, self.weight, self.bias, True, 1.0, self.eps)
            reject_absurd(self, mean, variance, ABSURD_WINDOW)
            return normalized
        mean, variance = self._mixture(x.detach())
        return F.batch_norm(x, mean, variance, self.weight, self.bias, False, 0.0, self.eps)

    def fixed_statistics(self, x: Tensor | None) -> tuple[Tensor, Tensor] | None:
        """Return the statistics of a window, those of the source included while it is not full."""
        if x is None:
            return None
        return self.moments(x, unbiased=False) if len(x) >= self.places else self._mixture(x)

    def _mixture(self, x: Tensor) -> tuple[Tensor, Tensor]:
        assert self.mean is not None
        assert self.variance is not None
        amount = self.processes.count_rows(x) / self.places
        mean, variance = self.moments(x, unbiased=False)
        reject_absurd(self, mean, variance, ABSURD_WINDOW)
        apart = mean - self.mean
        mixed = torch.lerp(self.variance.to(variance), variance, amount) + amount * (1 - amount) * apart.square()
        return (self.mean + amount * apart).to(self.mean.dtype), mixed.to(self.mean.dtype)


def source_energy(layer: StatisticsNorm, mean: Tensor, variance: Tensor) -> float:
    """Compute the mean square of a layer's input in source standard deviations, of the median channel.

    .. math:: \\mathrm{median}_c \\; \\frac{(\\mu_c - \\mu_c^s)^2 + \\sigma_c^2}{(\\sigma_c^s)^2 + \\epsilon}

    It is 1 on source data and grows with the square of the range of the images; the median ignores channels that were
    constant on the source data.

    Args:
        layer: A layer that stores source statistics.
        mean: The mean per channel of the batch, (C,).
        variance: Its variance per channel, (C,).

    Returns:
        The energy; NaN if a value is not finite.
    """
    scale = layer.source_variance.double().clamp(min=0) + layer.eps  # a negative variance is a fault of the model
    energy = ((mean.double() - layer.source_mean.double()).square() + variance.double()) / scale
    return float(energy.median() + 0 * energy.sum())  # 0 * inf is NaN


def reject_absurd(layer: StatisticsNorm, mean: Tensor, variance: Tensor, limit: float = ABSURD) -> float:
    """Return the energy of a batch, or reject the batch if it exceeds ``limit`` or is not finite.

    Raises:
        TTCError: If the batch would ruin what is stored.
    """
    energy = source_energy(layer, mean, variance)
    if not energy <= limit:
        distance = f"{energy**0.5:.3g}" if energy < math.inf else "infinitely many"
        raise TTCError(
            f"the batch lies {distance} source standard deviations from what the model was trained on, beyond "
            f"{limit**0.5:g} it would ruin the statistics of the stream; check the range of the images"
        )
    return energy


def update_weight(layer: StatisticsNorm, mean: Tensor, variance: Tensor) -> float:
    """Return how much a batch counts in running statistics: 1 if plausible, less beyond, rejected when absurd.

    .. math:: \\min(1, 6 / \\text{energy})^2

    So the more extreme a batch is, the less it moves what is stored.

    Raises:
        TTCError: If the batch is absurd.
    """
    return min(1.0, PLAUSIBLE / max(reject_absurd(layer, mean, variance), PLAUSIBLE)) ** 2


@contextmanager
def track_statistics(model: nn.Module, *, branch: int = 0) -> Iterator[None]:
    """Let the running statistics of ``model`` track the batches inside the block, on one branch."""
    layers = [module for module in model.modules() if isinstance(module, RunningNorm)]
    for layer in layers:
        layer.tracking, layer.branch = True, branch
    try:
        yield
    finally:
        for layer in layers:
            layer.tracking, layer.branch = False, 0


def _require_source(layer: StatisticsNorm) -> None:
    if layer.mean is None or layer.variance is None:
        raise TTCError(
            "a BatchNorm of the model stores no source statistics to start from; choose a method such as 'norm'"
        )


def _moments(x: Tensor, *, unbiased: bool) -> tuple[Tensor, Tensor]:
    """Return mean and variance per channel, each (C,), in float32 at least."""
    x = x.float() if x.dtype in {torch.float16, torch.bfloat16} else x
    variance, mean = torch.var_mean(x, dim=[0, *range(2, x.ndim)], correction=int(unbiased))
    return mean, variance


def _blend(stored: Tensor, new: Tensor, weight: float) -> Tensor:
    return torch.lerp(stored.to(new), new, weight)


def _normalize(layer: StatisticsNorm, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    shape = (1, -1, *[1] * (x.ndim - 2))
    scale = torch.rsqrt(variance + layer.eps)
    if layer.weight is not None:
        scale = scale * layer.weight
    shift = -mean * scale if layer.bias is None else layer.bias - mean * scale
    return (x * scale.view(shape) + shift.view(shape)).to(x.dtype)
