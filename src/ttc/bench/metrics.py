"""The numbers of a results table: accuracy, calibration, and how certain a difference is."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ttc.errors import TTCError

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Classes = NDArray[np.int64]


class MeanStd(NamedTuple):
    """A mean over runs and their standard deviation (n - 1 in the denominator), NaN for a single run."""

    mean: float
    std: float
    runs: int

    def __format__(self, spec: str) -> str:
        spec = spec or ".2f"
        return f"{self.mean:{spec}}" if self.runs < 2 else f"{self.mean:{spec}} ± {self.std:{spec}}"


class Interval(NamedTuple):
    """An estimate and the ends of its confidence interval."""

    estimate: float
    low: float
    high: float


class McNemar(NamedTuple):
    """The images that only the first and only the second method got right, and the exact two-sided p value."""

    only_first: int
    only_second: int
    p_value: float


def mean_std(values: Sequence[float]) -> MeanStd:
    """The mean and sample standard deviation of repeated runs.

    >>> f"{mean_std([0.70, 0.72, 0.74]):.3f}"
    '0.720 ± 0.020'
    >>> f"{mean_std([0.70])}"
    '0.70'
    """
    if not values:
        raise TTCError("a mean needs at least one value")
    array = np.asarray(values, dtype=np.float64)
    return MeanStd(float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else math.nan, len(array))


def calibration_error(confidence: Floats, correct: Flags, bins: int = 15) -> float:
    """Expected calibration error: Σ_b |B_b|/N · |accuracy(B_b) - confidence(B_b)| over equal bins of (0, 1].

    Guo et al., "On Calibration of Modern Neural Networks", ICML 2017. ``confidence`` is the largest probability (N,).

    >>> calibration_error(np.array([0.9, 0.9, 0.6, 0.6]), np.array([True, False, True, False]), bins=10).__round__(6)
    0.25
    """
    place = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    surplus = np.bincount(place, weights=correct - confidence, minlength=bins)  # |B| (accuracy - confidence) of each
    return float(np.abs(surplus).sum() / len(confidence))


def class_accuracy(correct: Flags, labels: Classes, num_classes: int) -> list[float | None]:
    """The accuracy on each class, None where the class was never shown.

    >>> class_accuracy(np.array([True, False, True]), np.array([0, 0, 2]), 3)
    [0.5, None, 1.0]
    """
    shown = np.bincount(labels, minlength=num_classes)
    right = np.bincount(labels, weights=correct, minlength=num_classes)
    return [float(hits / count) if count else None for hits, count in zip(right, shown, strict=True)]


def paired_interval(
    first: Flags | Floats, second: Flags | Floats, level: float = 0.95, draws: int = 4000, seed: int = 0
) -> Interval:
    """The mean difference second - first on the same images, with its bootstrap percentile interval.

    Images are drawn with replacement, the outputs of both methods for an image together. For several cells on the same
    images, average over cells first: (N,) means, so that an image counts once however often it was shown.

    >>> first, second = np.array([0, 0, 1, 1] * 50, bool), np.array([0, 1, 1, 1] * 50, bool)
    >>> [round(value, 2) for value in paired_interval(first, second)]
    [0.25, 0.19, 0.31]
    """
    gain = (second.astype(np.float64) - first.astype(np.float64)).round(12)
    values, counts = np.unique(gain, return_counts=True)
    drawn = np.random.default_rng(seed).multinomial(len(gain), counts / len(gain), size=draws)  # (draws, values)
    low, high = np.quantile(drawn @ values / len(gain), [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(gain.mean()), float(low), float(high))


def mcnemar(first: Flags, second: Flags) -> McNemar:
    """McNemar's exact test that two methods err equally often on the same images.

    Of the n images that exactly one method got right, the smaller count follows Binomial(n, 1/2):
    p = min(1, 2 · P(X ≤ min)).

    >>> mcnemar(np.array([1, 1, 1, 1, 0], bool), np.array([0, 0, 0, 0, 0], bool))
    McNemar(only_first=4, only_second=0, p_value=0.125)
    """
    only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
    n, smaller = only_first + only_second, min(only_first, only_second)
    ways = total = 1  # C(n, 0) and the sum of C(n, k) up to the smaller count, in whole numbers: nothing underflows
    for k in range(smaller):
        ways = ways * (n - k) // (k + 1)
        total += ways
    return McNemar(only_first, only_second, min(1.0, 2 * total / 2**n))
