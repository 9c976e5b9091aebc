"""The A-step: predict views of a batch and fuse the predictions into one soft label per sample."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ttc.clustering.views import View
from ttc.core.adapter import require_finite
from ttc.core.classifier import Classifier, Prediction
from ttc.core.entropy import softmax_entropy


class Assignment(NamedTuple):
    """The labels of a batch: fused logits (N, K), their entropy (N,), and the prediction on each view."""

    logits: Tensor
    entropy: Tensor
    views: tuple[Prediction, ...]


Fuse = Callable[[Sequence[Tensor]], Tensor]
"""Maps the logits of every view, each (N, K), to the logits that assign the labels."""


def first_view(logits: Sequence[Tensor]) -> Tensor:
    """Return the logits of the first view alone."""
    return logits[0]


def mean_of_views(logits: Sequence[Tensor]) -> Tensor:
    """Average the logits over views: robust label assignment (RLA).

    .. math:: \\bar f(x) = (f(x) + f(aug(x))) / 2

    Paper: TTC, Sec. "Robust Label Assignment".

    Args:
        logits: The logits of every view, each (N, K).

    Returns:
        The mean (N, K).

    Example:
        >>> mean_of_views([torch.tensor([[1.0, 3.0]]), torch.tensor([[3.0, 5.0]])]).tolist()
        [[2.0, 4.0]]
    """
    total = logits[0]
    for other in logits[1:]:
        total = total + other
    return total / len(logits)


def mean_of_probabilities(logits: Sequence[Tensor]) -> Tensor:
    """Return the log of the mean probability over views: the paper's "robust probability" taken literally.

    Args:
        logits: The logits of every view, each (N, K).

    Returns:
        Log probabilities (N, K).

    Example:
        >>> mean_of_probabilities([torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 0.0]])]).softmax(1).tolist()
        [[0.5, 0.5]]
    """
    return torch.stack([one.log_softmax(1) for one in logits]).logsumexp(0) - torch.tensor(len(logits)).log().item()


def assign(model: Classifier, x: Tensor, views: Sequence[View], fuse: Fuse, *, together: bool = False) -> Assignment:
    """Label a batch: the A-step.

    Args:
        model: Predicts each view.
        x: A validated batch.
        views: The views to predict.
        fuse: Fuses the logits of the views.
        together: Whether the views share one forward pass and its batch statistics.

    Returns:
        Fused logits, their entropy, and the prediction of each view.

    Raises:
        TTCError: If the fused logits are not finite.
    """
    images = [view(x) for view in views]
    predictions = model.together(images) if together else model.each(images)
    logits = require_finite(fuse([prediction.logits for prediction in predictions]))
    return Assignment(logits, softmax_entropy(logits), predictions)
