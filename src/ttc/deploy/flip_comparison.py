"""What the source and the adapted network predict for a batch and for its flip."""

from typing import NamedTuple

import torch
from torch import Tensor

from ttc.core import Adapter, Classifier, freeze_statistics


class FlipPair(NamedTuple):
    """What one network predicts for a batch and for its horizontal flip.

    Args:
        logits: Those of the batch (N, K).
        flipped: Those of its flip (N, K).
        consistency: The probability (N,) of predicting the same class for both.
    """

    logits: Tensor
    flipped: Tensor
    consistency: Tensor

    @classmethod
    def of(cls, logits: Tensor, flipped: Tensor) -> "FlipPair":
        """Make a pair, and compute its consistency.

        Example:
            >>> FlipPair.of(torch.tensor([[9.0, 0.0]]), torch.tensor([[0.0, 0.0]])).consistency
            tensor([0.5000])
        """
        return cls(logits, flipped, (probabilities(logits) * probabilities(flipped)).sum(1))

    def mean_probability(self) -> Tensor:
        """Return the mean probability (K,) of the batch, on the CPU."""
        return probabilities(self.logits).mean(0).cpu()


class FlipComparison(NamedTuple):
    """The predictions of three networks for a batch and its flip.

    Args:
        source: The source model.
        blended: The source model with some of the batch in its statistics; ``source`` where it has no such layers.
        adapted: The network of the adapter.
    """

    source: FlipPair
    blended: FlipPair
    adapted: FlipPair


@torch.no_grad()
def compare_with_source(
    adapter: Adapter, source: Classifier, blended: Classifier | None, x: Tensor
) -> FlipComparison | None:
    """Predict a batch and its flip with each network: six forward passes, nothing changes.

    Networks are compared rather than methods, because the fused output of TTC is the same for an image and its flip.

    Args:
        adapter: The adapter, whose state is not changed.
        source: The source model.
        blended: The source model with blended statistics; None if it has no statistics to blend.
        x: The validated batch (N, C, H, W).

    Returns:
        The comparison, or None if an output is not finite.
    """
    views = x, x.flip(-1)
    with freeze_statistics(adapter.model):
        of_source = FlipPair.of(*(source(view).logits for view in views))
        of_blended = of_source if blended is None else FlipPair.of(*(blended(view).logits for view in views))
        of_adapted = FlipPair.of(*(_predict_in_context(adapter, view) for view in views))
    found = FlipComparison(of_source, of_blended, of_adapted)
    finite = [pair.logits.sum() + pair.consistency.sum() for pair in found]
    return found if bool(torch.stack(finite).isfinite().all()) else None


def probabilities(logits: Tensor) -> Tensor:
    """Return the probabilities of logits, in float32."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).softmax(1).float()


def _predict_in_context(adapter: Adapter, x: Tensor) -> Tensor:
    """Predict ``x`` with the adapted network, among the images that the adapter predicts it with."""
    logits: Tensor = adapter.model(adapter.context(x)).logits[-len(x) :]
    return logits
