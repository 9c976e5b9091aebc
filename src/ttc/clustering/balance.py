"""Soft weights by confidence and a balance of classes, both over a window of images instead of a batch."""

from typing import ClassVar

import torch
from torch import Tensor

from ttc.clustering.assignment import Assignment
from ttc.clustering.selection import Selector
from ttc.core.part import Part
from ttc.errors import TTCError


class ConfidenceWeights(Selector):
    """Weights every sample by its confidence relative to recent ones, exp(H̄ - H).

    H̄ is the mean entropy over about ``window`` images: that of the batch if it is as large, else a moving average.

    Args:
        window: The number of images.
    """

    state_attributes: ClassVar[tuple[str, ...]] = ("average",)

    def __init__(self, window: int = 100) -> None:
        self.window = _positive(window)
        self.average: Tensor | None = None

    @property
    def never_empty(self) -> bool:
        """Whether every batch has a selected sample: it has."""
        return True

    def __call__(self, assignment: Assignment) -> Tensor:
        value = assignment.entropy.detach()
        mean = value.mean()
        amount = image_fraction(len(value), self.window)
        self.average = mean if self.average is None else torch.lerp(self.average.to(mean), mean, amount)
        return torch.exp(self.average - value)


class WindowedDiversity(Part):
    """Draws the prediction averaged over a window of images towards equally frequent classes.

    .. math:: L(x) = \\sum_k p_k(x) \\log(K \\bar p_k)

    with the average p̄ constant in the backward pass. Over a window of one batch its mean has the gradient of minus the
    entropy of the mean prediction (:class:`ttc.clustering.Diversity`), but it works for single images too.

    Args:
        window: The number of images over which predictions are averaged.
    """

    state_attributes: ClassVar[tuple[str, ...]] = ("average",)

    def __init__(self, window: int = 100) -> None:
        self.window = _positive(window)
        self.average: Tensor | None = None  # (K,); None stands for the uniform distribution

    def __call__(self, assignment: Assignment) -> Tensor:
        logits = assignment.logits
        probability = logits.softmax(1, dtype=torch.promote_types(logits.dtype, torch.float32))
        classes, mean = logits.shape[1], probability.detach().mean(0)
        old = torch.full_like(mean, 1 / classes) if self.average is None else self.average.to(mean)
        self.average = torch.lerp(old, mean, image_fraction(len(logits), self.window))
        return (probability * (classes * self.average.clamp(min=1e-6)).log()).sum(1)


def image_fraction(count: int, window: int) -> float:
    """Return the weight of a batch in a moving average over a window of images: 1 if it fills the window.

    >>> [round(image_fraction(count, 100), 3) for count in (1, 50, 100)]
    [0.01, 0.395, 1.0]
    """
    return 1.0 if count >= window else 1 - (1 - 1 / window) ** count


def _positive(window: int) -> int:
    if window < 1:
        raise TTCError(f"a window is a positive number of images, got {window}")
    return window
