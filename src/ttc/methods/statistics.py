"""The methods without gradients on statistics alone: SOURCE and NORM with its variants."""

from functools import partial

import torch
from torch import Tensor

from ttc.core import Adapter, Classifier, finite, frozen
from ttc.core.normalization import BatchNorm, BlendNorm, TrackNorm, tracking
from ttc.errors import TTCError


class Predictor(Adapter):
    """Answers with the prepared model as it is; nothing is remembered."""

    @torch.no_grad()
    def adapt(self, x: Tensor) -> Tensor:
        """The model's logits."""
        return finite(self.model(x).logits)

    def answer_only(self, x: Tensor) -> Tensor:
        """The model's logits: there is nothing to learn."""
        return self.adapt(x)


class FollowingPredictor(Adapter):
    """Lets the statistics follow a batch, then answers with the followed ones."""

    @torch.no_grad()
    def adapt(self, x: Tensor) -> Tensor:
        """The model's logits after its statistics took in the batch."""
        with tracking(self.model):
            finite(self.model(x).logits)
        return finite(self.model(x).logits)

    def answer_only(self, x: Tensor) -> Tensor:
        """The model's logits with the statistics it holds."""
        return finite(self.model(x).logits)


def source(model: Classifier) -> Predictor:
    """SOURCE: the model as it was trained, unchanged."""
    return Predictor(frozen(model))


def norm(model: Classifier) -> Predictor:
    """NORM: the statistics of each batch in place of the source's.

    Schneider et al., "Improving Robustness against Common Corruptions by Covariate Shift Adaptation", NeurIPS 2020;
    Nado et al., 2020.
    """
    return Predictor(frozen(model, BatchNorm))


def norm_blend(model: Classifier, *, alpha: float | None = None, source_pseudo_count: float | None = None) -> Predictor:
    """NORM, blended: batch statistics with weight α, source statistics with weight 1 - α.

    Schneider et al., NeurIPS 2020. Give ``alpha``, or ``source_pseudo_count`` N_s for α = N / (N + N_s); 16 images
    count for the source unless said otherwise.
    """
    if alpha is None and source_pseudo_count is None:
        source_pseudo_count = 16
    return Predictor(frozen(model, partial(BlendNorm, alpha=alpha, source_pseudo_count=source_pseudo_count)))


def norm_ema(model: Classifier, *, momentum: float = 0.1) -> FollowingPredictor:
    """NORM, following: source statistics that move towards each batch, an exponential average over the stream."""
    if not 0 <= momentum <= 1:
        raise TTCError(f"momentum is the weight of a new batch and lies in [0, 1], got {momentum}")
    return FollowingPredictor(frozen(model, partial(TrackNorm, momentum=momentum)))
