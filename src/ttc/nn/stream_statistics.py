"""Batch normalization with statistics that follow the stream: running ones, moving averages, a window.

No batch can ruin what is stored: see :mod:`ttc.nn.plausibility` and :mod:`ttc.nn.outliers`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ttc.errors import TTCError
from ttc.nn.normalization import StatisticsNorm, blend, normalize_with, require_source
from ttc.nn.outliers import Choice, initial_alternatives, is_second_and_far
from ttc.nn.plausibility import ABSURD_WINDOW, reject_absurd, update_weight


class RunningNorm(StatisticsNorm):
    """Normalizes with the batch while tracking it in running statistics, else with the running statistics.

    Tracking is off but inside :func:`track_statistics`. An implausible batch counts less, an absurd one is rejected
    (:mod:`ttc.nn.plausibility`).

    Args:
        layer: The layer to replace.
        momentum: The weight of a new batch in the running statistics.
        branches: How many sets of running statistics to store for one affine map (TIPI uses two).
        bounded: Whether a batch that moves them far counts fully only if the next one confirms it
            (:mod:`ttc.nn.outliers`); for methods that show the layer each batch once per branch.
    """

    updates = shares_stream = True
    first_far: ClassVar[float] = 0.3
    """Distance of the second batch from the first from which one is an outlier; good ones of 8 stay below."""
    mean: Tensor
    variance: Tensor
    alternatives: Tensor | None

    def __init__(self, layer: _BatchNorm, *, momentum: float = 0.1, branches: int = 1, bounded: bool = False) -> None:
        super().__init__(layer)
        require_source(self)
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
        self._store((mean, variance), batch, x.detach())
        return normalized

    def _normalize_and_store(self, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """Do what ``batch_norm`` does, with the statistics of the shards of all processes."""
        batch_mean, batch_variance = self.moments(x, unbiased=False)
        count = self._count_values(x)
        unbiased = batch_variance * (count / (count - 1))
        self._store((mean, variance), (batch_mean.detach(), unbiased.detach()), x.detach())
        return normalize_with(self, x, batch_mean, batch_variance)

    @torch.no_grad()
    def _store(self, stored: tuple[Tensor, Tensor], batch: tuple[Tensor, Tensor], x: Tensor) -> None:
        """Update the stored statistics in place, by less if the batch is implausible."""
        amount = self.momentum * update_weight(self, *batch)
        if self.alternatives is None:
            after = stored[0].lerp(batch[0], amount), stored[1].lerp(batch[1], amount)
        else:
            alternatives = self.alternatives[self.branch]
            choice = Choice(stored, alternatives, batch, self.eps, leaves_first=_leaves_first(self, x, alternatives))
            after = choice.chosen[0].lerp(batch[0], amount), choice.chosen[1].lerp(batch[1], amount)
            alternatives.copy_(choice.next_alternatives(after))
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
        mean, variance = blend(self.mean[0], mean, self.momentum), blend(self.variance[0], variance, self.momentum)
        # New tensors, not written in place: the backward pass may still need the old ones.
        self.mean, self.variance = mean.detach()[None].to(self.mean), variance.detach()[None].to(self.variance)
        return normalize_with(self, x, mean, variance)


class EmaNorm(StatisticsNorm):
    """Normalizes with an exponential moving average over the images of the stream.

    .. math:: s \\leftarrow (1-a)\\,s + a\\,\\text{batch}, \\quad a = 1 - (1-w)^N

    A batch of N counts as N single images, so predictions hardly depend on N. The variance is the mixture's, to which
    the distance of the means adds a(1-a)(μ_s - μ_t)²: single images differ in their means. It starts from the source
    statistics, is updated unless ``tracking`` is off, and passes no gradient through the statistics. An implausible
    batch counts less, an absurd one is rejected (:mod:`ttc.nn.plausibility`), and an outlier that the next batch
    contradicts is undone but for a bounded move (:mod:`ttc.nn.outliers`).

    Args:
        layer: The layer to replace.
        weight: w, the weight of a new image.
    """

    updates = shares_stream = True
    first_far: ClassVar[float] = 0.5
    """As in :class:`RunningNorm`, but the layers below move between two batches: good ones of 8 have up to 0.46."""
    alternatives: Tensor

    def __init__(self, layer: "_BatchNorm | StatisticsNorm", *, weight: float = 0.01) -> None:
        super().__init__(layer)
        require_source(self)
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
            normalize_with(self, x, self.mean, self.variance)
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
        choice = None
        if images > 1:
            leaves_first = not self.repeating and _leaves_first(self, x, self.alternatives)
            batch, alternatives = (mean, variance), self.alternatives
            choice = Choice(current, alternatives, batch, self.eps, leaves_first=leaves_first, repeating=self.repeating)
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
        require_source(self)
        self.keep_source_()
        self.places = places

    def forward(self, x: Tensor) -> Tensor:
        assert self.mean is not None
        assert self.variance is not None
        if self.processes.count_rows(x) >= self.places and self.has_variance(x):
            if self.processes.active:
                mean, variance = self.moments(x, unbiased=False)
                reject_absurd(self, mean.detach(), variance.detach(), ABSURD_WINDOW)
                return normalize_with(self, x, mean, variance)
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


def _leaves_first(layer: RunningNorm | EmaNorm, x: Tensor, alternatives: Tensor) -> bool:
    """Tell whether a batch is the second one, and far from the first; a shard of a batch does not tell."""
    source = layer.source_mean, layer.source_variance
    return not layer.processes.active and is_second_and_far(x, alternatives, source, layer.eps, layer.first_far)
