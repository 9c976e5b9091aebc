"""Statistics pooled over the stream while it stays one domain, and restarted when it does not."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ttc.errors import TTCError
from ttc.nn.activation import clamp_, where_active
from ttc.nn.equalization import Equalization
from ttc.nn.normalization import StatisticsNorm
from ttc.nn.plausibility import update_weight

POOL = ("mean", "variance", "recent_mean", "recent_variance", "spread", "images")
"""What a :class:`PooledNorm` stores of a domain, replaced by each batch and written into by none."""
CACHED = 1 << 20  # values that are measured at a time: 4 MB
Statistics = tuple[Tensor, Tensor]
"""A mean and a variance, (C,)."""


class PooledNorm(StatisticsNorm):
    """Normalizes with statistics pooled over the stream, more with recent ones the further the two are apart.

    The pool starts as the source statistics, which count for ``source_count`` images; a batch of N then has the weight
    N / (M + N) in a pool of M images, and M grows up to ``window``. Beside it, an exponential average over about
    ``recent`` images, the batch included, follows the stream closely. Their squared distance, in units of what sampling
    alone explains,

    .. math:: r = \\mathrm{mean}_c \\frac{(\\mu^{recent}_c - \\mu^{pool}_c)^2}{v_c / n}

    with v the variance of the means of single images and n the effective number of recent images, is about 1 in a
    stable stream. The layer normalizes with ``pool + (1 - tolerance / r)₊ · (recent - pool)``. The batch at hand is
    part of both, at any size. Gradients pass as through the statistics of the batch alone (batch renormalization). An
    implausible batch counts less, an absurd one is rejected (:func:`ttc.nn.plausibility.update_weight`). With
    ``tracking`` off nothing is stored. Other views of the last batch that was stored, or of a part of it
    (:func:`ttc.core.statistics.repeat_batch`), are normalized as it was, and not measured. With an ``equalization``
    (:class:`ttc.nn.Equalization`), images (N, C, H, W) are equalized towards the source statistics before.

    Args:
        layer: The layer to replace.
        source_count: The number of images that the source statistics count for.
        window: The largest number of images that the pool counts for: older ones are of a model that learned less.
        recent: The number of images that the recent average remembers.
        tolerance: The distance r up to which the pool alone is used; a buffer, so that it may follow the stream.
    """

    uses_batch = updates = True
    mean: Tensor
    variance: Tensor
    recent_mean: Tensor
    recent_variance: Tensor
    spread: Tensor
    images: Tensor
    distance: Tensor
    tolerance: Tensor

    def __init__(
        self,
        layer: _BatchNorm | StatisticsNorm,
        *,
        source_count: float = 16.0,
        window: float = 300.0,
        recent: float = 32.0,
        tolerance: float = 16.0,
    ) -> None:
        super().__init__(layer)
        if any(getattr(self, name) is None for name in ("mean", "variance")):
            raise TTCError(
                "a BatchNorm of the model stores no source statistics to start from; choose a method such as 'norm'"
            )
        if min(source_count, tolerance) <= 0 or recent <= 1 or window < recent:
            raise TTCError(
                "a pool counts images: some of the source, more than one recent one, and no fewer in its window"
            )
        self.keep_source_()
        self.window, self.recent = window, recent
        self.tracking, self.repeating = True, False
        self.equalization: Equalization | None = None
        for name in ("mean", "variance"):  # own copies, precise enough for small weights
            stored = getattr(self, name)
            precise = stored.to(torch.promote_types(stored.dtype, torch.float32), copy=True)
            setattr(self, name, precise)
            self.register_buffer(f"recent_{name}", precise.clone())
        self.register_buffer("spread", torch.zeros_like(self.mean))
        for name, value in {"images": source_count, "distance": 0.0, "tolerance": tolerance}.items():
            self.register_buffer(name, torch.full_like(self.mean[0], value))
        self.source_count = source_count

    def forward(self, x: Tensor) -> Tensor:
        return self._forward(x, None)

    def forward_relu(self, x: Tensor, ceiling: float) -> Tensor:
        """Return ReLU of the output, saving only ``x`` for the backward pass; ``ceiling`` is its largest value."""
        return self._forward(x, ceiling)

    def _forward(self, x: Tensor, ceiling: float | None) -> Tensor:
        images = None
        if self.equalization is not None and x.ndim == 4:
            x, images = self._equalize(x, self.equalization)
        if self.repeating or not self.has_variance(x):
            pool, recent = (self.mean, self.variance), (self.recent_mean, self.recent_variance)
            return self._normalize(x, *self._trusted(pool, recent, self.distance), ceiling)
        batch = self._combine(*(images or self._measure(x.detach())))
        mean, variance = self._track(batch)
        if not (x.requires_grad and torch.is_grad_enabled()):
            return self._normalize(x, mean, variance, ceiling)
        weight, bias = (
            torch.full_like(mean, default) if p is None else p.to(mean.dtype)
            for p, default in ((self.weight, 1.0), (self.bias, 0.0))
        )
        normalized: Tensor = _Renormalize.apply(  # type: ignore[no-untyped-call]
            x, weight, bias, mean, variance, batch.mean, batch.variance, self.eps, ceiling
        )
        return normalized

    def _normalize(self, x: Tensor, mean: Tensor, variance: Tensor, ceiling: float | None) -> Tensor:
        weight, bias = (None if p is None else p.to(mean.dtype) for p in (self.weight, self.bias))
        normalized = F.batch_norm(x, mean, variance, weight, bias, False, 0.0, self.eps)
        return normalized if ceiling is None else clamp_(normalized, ceiling)

    @torch.no_grad()
    def _measure(self, x: Tensor) -> Statistics:
        """Return the mean and the mean square (N, C) of each image, both of its distance from the pool's mean.

        They are summed over one image at a time: torch's variance over all images takes twenty times as long on a CPU,
        and its norm per image ten times as long as squaring in place where channels come last. Images are taken in
        parts that fit into a processor's cache.
        """
        axes, centre = list(range(2, x.ndim)), self.mean.view(1, -1, *[1] * (x.ndim - 2))
        sums = []
        for part in x.split(max(1, CACHED * len(x) // x.numel())):
            near = part.to(self.mean.dtype) - centre  # near zero: squares stay precise
            mean = near.mean(axes) if axes else near.clone()  # (n, C)
            sums.append((mean, near.square_().mean(axes) if axes else near.square_()))
        means, squares = (torch.cat(values) for values in zip(*sums, strict=True))  # (N, C) each
        return means, squares

    @torch.no_grad()
    def _combine(self, means: Tensor, squares: Tensor) -> "_Moments":
        """Return the statistics of a batch from what :meth:`_measure` returns."""
        offset = means.mean(0)  # (C,)
        variance = (squares.mean(0) - offset.square()).clamp(min=0)
        return _Moments(self.mean + offset, variance, self.mean + means)

    def _equalize(self, x: Tensor, step: Equalization) -> tuple[Tensor, Statistics]:
        """Return images (N, C, H, W) equalized towards the source, and what :meth:`_measure` returns for them."""
        means, squares = self._measure(x.detach())
        variances = (squares - means.square()).clamp(min=0)
        source = self.source_mean.to(means), self.source_variance.to(means) + self.eps
        scale, shift = step(means + self.mean, variances + self.eps, *source)
        equalized = torch.addcmul(shift[:, :, None, None].to(x), x, scale[:, :, None, None].to(x))
        with torch.no_grad():
            means = (means + self.mean) * scale + shift - self.mean
            return equalized, (means, variances * scale.square() + means.square())

    @torch.no_grad()
    def _track(self, batch: "_Moments") -> Statistics:
        """Return the statistics to normalize a batch with; store the new pool while tracking."""
        plausible = update_weight(self, batch.mean, batch.variance)
        count = len(batch.image_means)
        weight = plausible * count / (self.images + plausible * count)
        kept = plausible * (1 - (1 - 1 / self.recent) ** count)
        pool = _mixture(self.mean, self.variance, batch, weight)
        recent = _mixture(self.recent_mean, self.recent_variance, batch, kept)
        spread = self._spread(batch.image_means, recent[0], count)
        # The weights of recent images: those of the batch are equal, older ones fall off exponentially.
        effective = 1 / (kept**2 / count + (1 - kept) ** 2 / (2 * self.recent))
        noise = spread / effective
        distance = ((recent[0] - pool[0]).square() / (noise + 1e-12)).mean()
        if self.tracking:
            # New tensors, not written in place: the backward pass of another view may still need the old ones.
            (self.mean, self.variance), (self.recent_mean, self.recent_variance) = pool, recent
            self.spread, self.distance = spread, distance
            self.images = (self.images + plausible * count).clamp(max=self.window)
        return self._trusted(pool, recent, distance)

    def _trusted(self, pool: Statistics, recent: Statistics, distance: Tensor) -> Statistics:
        """Return the statistics of the pool, moved towards the recent ones as far as these are beyond the tolerance."""
        trust = (1 - self.tolerance / distance.clamp(min=1e-9)).clamp(min=0)
        return torch.lerp(pool[0], recent[0], trust), torch.lerp(pool[1], recent[1], trust)

    def _spread(self, means: Tensor, centre: Tensor, count: float) -> Tensor:
        """Return the moving average of the variance of the means (N, C) of single images, (C,)."""
        new = (means - centre).square().mean(0)
        seen = (self.images - self.source_count).clamp(min=0)
        return torch.lerp(self.spread, new, count / (seen + count))

    @torch.no_grad()
    def restart_(self) -> None:
        """Begin anew, half with the source statistics and half with recent ones.

        Recent ones alone would be mostly of the domain before: with small batches few images show a change.
        """
        recent = _Moments(self.recent_mean, self.recent_variance, self.recent_mean[None])
        source = self.source_mean.to(self.mean), self.source_variance.to(self.mean)
        self.mean, self.variance = _mixture(*source, recent, 0.5)
        self.recent_mean, self.recent_variance = self.mean.clone(), self.variance.clone()
        self.images = torch.full_like(self.images, self.source_count)


class _Renormalize(torch.autograd.Function):
    """Normalize with given statistics, with gradients as through those of the batch (batch renormalization).

    With σ² = variance + eps, r = σ_batch / σ and d = (μ_batch - μ) / σ, the output is γ (x̂ r + d) + β, where x̂ is
    normalized by the batch; r and d are constant in the backward pass. Values equal those of ``F.batch_norm``. With a
    ``ceiling``, ReLU follows, whose output is computed again in the backward pass: cheaper than to save it.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        mean: Tensor,
        variance: Tensor,
        batch_mean: Tensor,
        batch_variance: Tensor,
        eps: float,
        ceiling: float | None,
    ) -> Tensor:
        scale = (variance + eps).rsqrt()
        ratio, shift = (batch_variance + eps).sqrt() * scale, (batch_mean - mean) * scale  # r, d
        normalizing = weight, bias, mean, variance
        ctx.save_for_backward(x, *normalizing, batch_mean, (batch_variance + eps).rsqrt(), ratio, shift)
        ctx.eps, ctx.ceiling = eps, ceiling
        y = F.batch_norm(x, mean, variance, weight, bias, False, 0.0, eps)
        return y if ceiling is None else clamp_(y, ceiling)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, mean, variance, batch_mean, batch_inverse, ratio, shift = ctx.saved_tensors
        if ctx.ceiling is not None:
            y = F.batch_norm(x, mean, variance, weight, bias, False, 0.0, ctx.eps)
            gradient = where_active(gradient, y, ctx.ceiling)
        to_x, to_weight, to_bias = torch.ops.aten.native_batch_norm_backward(
            gradient, x, weight * ratio, None, None, batch_mean, batch_inverse, True, ctx.eps, [True, True, True]
        )
        return to_x, ratio * to_weight + shift * to_bias, to_bias, *[None] * 6


def pooled_layers(model: nn.Module) -> list[PooledNorm]:
    """Return the layers of a model that pool their statistics."""
    return [layer for layer in model.modules() if isinstance(layer, PooledNorm)]


def pools_have_changed(model: nn.Module) -> bool:
    """Tell whether the last batch belongs to another domain than the pools of a model.

    It does when the geometric mean of 1 + r / tolerance over the layers is beyond 1.5, with r the last distance. A new
    domain moves all layers, or some very far; what the model itself learns moves a few by several tolerances.

    Args:
        model: A model with :class:`PooledNorm` layers; without them nothing can change.
    """
    distances = [layer.distance / layer.tolerance for layer in pooled_layers(model)]
    if not distances:
        return False
    return bool(torch.stack(distances).log1p().mean().exp() > CHANGED)


def restart_pools_(model: nn.Module) -> None:
    """Restart all pools of a model, in place."""
    for layer in pooled_layers(model):
        layer.restart_()


def discount_pools_(model: nn.Module, fraction: Tensor) -> None:
    """Let all pools of a model count for fewer images, by a fraction in [0, 1]: so they follow the stream faster."""
    for layer in pooled_layers(model):
        layer.images = layer.images * (1 - fraction).to(layer.images)


@contextmanager
def restore_pools(model: nn.Module) -> Iterator[None]:
    """Let the pools of a model follow the batches inside the block, and restore them after it."""
    layers = pooled_layers(model)
    before = [{name: getattr(layer, name) for name in (*POOL, "distance", "tracking")} for layer in layers]
    try:
        for layer in layers:
            layer.tracking = True
        yield
    finally:
        for layer, values in zip(layers, before, strict=True):
            for name, value in values.items():
                setattr(layer, name, value)


def set_pool_tolerance_(model: nn.Module, tolerance: float) -> None:
    """Set how far recent statistics may lie from the pool in every :class:`PooledNorm` of a model."""
    for layer in pooled_layers(model):
        layer.tolerance = torch.full_like(layer.tolerance, tolerance)


CHANGED = 1.5  # the mean of 1 + r / tolerance from which on pools are given up: 1.4 was seen without a new domain


class _Moments(NamedTuple):
    """The statistics of a batch."""

    mean: Tensor  # (C,)
    variance: Tensor  # (C,)
    image_means: Tensor  # (N, C)


def _mixture(mean: Tensor, variance: Tensor, batch: _Moments, weight: Tensor | float) -> tuple[Tensor, Tensor]:
    """Mix statistics with those of a batch, with the distance of the means in the variance."""
    apart = batch.mean - mean
    spread = weight * (1 - weight) * apart.square()
    return mean + weight * apart, variance + weight * (batch.variance - variance) + spread
