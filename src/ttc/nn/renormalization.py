"""Batch renormalization at test time: values from running statistics, gradients as through those of the batch."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from ttc.errors import TTCError
from ttc.nn.normalization import StatisticsNorm


class BatchRenorm(StatisticsNorm):
    """Normalizes with running statistics of the test stream while gradients pass through those of the batch.

    .. math:: y = \\gamma \\left( \\frac{x - \\mu_b}{\\sigma_b} \\, r + d \\right) + \\beta, \\quad
        r = \\frac{\\sigma_b}{\\sigma_e}, \\quad d = \\frac{\\mu_b - \\mu_e}{\\sigma_e}

    with r and d constant in the backward pass, and σ² = variance + eps with the biased variance. Running μ_e and σ_e
    are those of the first batch at first; after each batch they become decay · old + (1 - decay) · batch, unless
    ``tracking`` is off.

    Args:
        layer: The layer to replace.
        decay: The weight of the old value in the running statistics.
    """

    uses_batch = needs_large_batches = updates = True
    running_mean: Tensor
    running_std: Tensor
    batches: Tensor

    def __init__(self, layer: _BatchNorm | StatisticsNorm, *, decay: float = 0.95) -> None:
        if not 0 <= decay <= 1:
            raise TTCError(f"decay is the weight of the old statistics and lies in [0, 1], got {decay}")
        super().__init__(layer)
        self.decay, self.tracking = decay, True
        like = next((t for t in (self.weight, self.mean) if t is not None), torch.empty(0)).detach()
        wide = torch.promote_types(like.dtype, torch.float32)
        self.register_buffer("running_mean", torch.zeros(self.num_features, dtype=wide, device=like.device))
        self.register_buffer("running_std", torch.ones(self.num_features, dtype=wide, device=like.device))
        self.register_buffer("batches", torch.zeros((), dtype=torch.long, device=like.device))

    def forward(self, x: Tensor) -> Tensor:
        if not self.has_variance(x):
            return self.normalize_with_stored(x)
        mean, std = self._batch_statistics(x.detach())
        started = self.batches > 0
        running_mean = torch.where(started, self.running_mean, mean)
        running_std = torch.where(started, self.running_std, std)
        scale, shift = std / running_std, (mean - running_mean) / running_std  # r and d
        if self.weight is not None:
            scale, shift = scale * self.weight, shift * self.weight
        if self.bias is not None:
            shift = shift + self.bias
        if self.tracking:
            self._track(running_mean, running_std, mean, std)
        shape = (1, -1, *[1] * (x.ndim - 2))
        normalized = F.batch_norm(x, None, None, None, None, True, 0.0, self.eps)
        return (normalized * scale.view(shape) + shift.view(shape)).to(x.dtype)

    def fixed_statistics(self, x: Tensor | None) -> tuple[Tensor, Tensor] | None:
        """Return the running statistics, from the first batch on."""
        return (self.running_mean, self.running_std.square() - self.eps) if bool(self.batches) else None

    def _batch_statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values = x.to(self.running_mean.dtype)
        variance, mean = torch.var_mean(values, dim=[0, *range(2, x.ndim)], correction=0)  # (C,) each
        return mean, (variance + self.eps).sqrt()

    def _track(self, running_mean: Tensor, running_std: Tensor, mean: Tensor, std: Tensor) -> None:
        # New tensors, not written in place: the backward pass may still need the old ones.
        self.running_mean = torch.lerp(running_mean, mean, 1 - self.decay)
        self.running_std = torch.lerp(running_std, std, 1 - self.decay)
        self.batches = self.batches + 1
