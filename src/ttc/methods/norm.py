"""NORM: statistics of the test data in BatchNorm, without gradients.

Schneider et al., "Improving Robustness against Common Corruptions by Covariate Shift Adaptation", NeurIPS 2020; Nado et
al., "Evaluating Prediction-Time Batch Normalization for Robustness under Covariate Shift", 2020.
"""

from functools import partial

import torch
from torch import Tensor

from ttc.core import Adapter, Classifier, PredictOnly, require_finite
from ttc.core.part import share_parts_
from ttc.core.processes import Processes
from ttc.errors import TTCError
from ttc.methods.method import Method
from ttc.nn import BatchStatisticsNorm, BlendNorm, RunningNorm, frozen_copy, track_statistics


class RunningNormAdapter(Adapter):
    """Updates running statistics with the batch, then predicts with them."""

    @torch.no_grad()
    def adapt(self, x: Tensor) -> Tensor:
        """Return the model's logits after its statistics tracked the batch."""
        with track_statistics(self.model):
            require_finite(self.model(x).logits)
        return require_finite(self.model(x).logits)

    def infer(self, x: Tensor) -> Tensor:
        """Return the model's logits with the statistics stored so far."""
        return require_finite(self.model(x).logits)

    def share_stream_(self, processes: Processes) -> None:
        """Share a stream: the layers track the statistics of the whole batch."""
        share_parts_(self, processes)


def norm(model: Classifier) -> PredictOnly:
    """NORM: the statistics of each batch in place of the source statistics.

    Schneider et al., "Improving Robustness against Common Corruptions by Covariate Shift Adaptation", NeurIPS 2020;
    Nado et al., 2020.
    """
    return PredictOnly(frozen_copy(model, BatchStatisticsNorm))


def norm_blend(
    model: Classifier, *, alpha: float | None = None, source_pseudo_count: float | None = None
) -> PredictOnly:
    """NORM, blended: batch statistics with weight α, source statistics with weight 1 - α.

    Schneider et al., NeurIPS 2020.

    Args:
        alpha: α, the weight of the batch in [0, 1]; ``None`` derives it from ``source_pseudo_count``.
        source_pseudo_count: N_s, the number of images that the source statistics count for: α = N / (N + N_s). With
            neither option given it is 16; with both, the smaller weight counts.
    """
    if alpha is None and source_pseudo_count is None:
        source_pseudo_count = 16
    return PredictOnly(frozen_copy(model, partial(BlendNorm, alpha=alpha, source_pseudo_count=source_pseudo_count)))


def norm_ema(model: Classifier, *, momentum: float = 0.1) -> RunningNormAdapter:
    """NORM, running: an exponential moving average of batch statistics that starts from the source statistics.

    Args:
        momentum: The weight of a new batch in the moving average, in [0, 1].
    """
    if not 0 <= momentum <= 1:
        raise TTCError(f"momentum is the weight of a new batch and lies in [0, 1], got {momentum}")
    return RunningNormAdapter(frozen_copy(model, partial(RunningNorm, momentum=momentum, bounded=True)))


METHOD = Method(name="norm", build=norm, changes=("norm statistics",), needs=("large batches",), paper="Schneider 2020")
VARIANTS = (
    Method(
        name="norm-blend",
        build=norm_blend,
        changes=("norm statistics",),
        needs=("source statistics",),
        paper="Schneider 2020",
    ),
    Method(
        name="norm-ema",
        build=norm_ema,
        changes=("norm statistics",),
        forwards=2,
        predicts="after",
        memory="running statistics",
        needs=("source statistics",),
        paper="Schneider 2020",
    ),
)
