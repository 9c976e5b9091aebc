"""The guard's settings."""

import math
from dataclasses import dataclass, field

from ttc.errors import TTCError


@dataclass(frozen=True)
class Limits:
    """Thresholds beyond which a signal counts as unhealthy; docs/reliability.md shows what the defaults do.

    Args:
        class_fraction: Largest fraction of recent predictions that one class may have.
        effective_classes: Smallest ratio of the recent effective number of predicted classes to its history.
        entropy: Smallest ratio of the recent mean entropy to its history.
        parameter_drift: Largest relative distance of the parameters from their initial values, ‖θ - θ₀‖ / ‖θ₀‖.
        statistics_drift: Largest distance of running statistics from the source's, in source standard deviations of a
            layer's input; 1 is the source itself.
        consistency_gap: Lead of the source model in flip consistency, the probability of predicting the same class for
            an image and its horizontal flip, from which the source model predicts and nothing is learned
            (:class:`ttc.deploy.Guard`).
        source_consistency: Flip consistency of the source model below which it predicts only with part of the batch
            in its statistics.

    Raises:
        TTCError: If a limit is not a positive finite number.

    Example:
        >>> Limits(class_fraction=0.7).class_fraction
        0.7
    """

    class_fraction: float = 0.9
    effective_classes: float = 0.5
    entropy: float = 0.2
    parameter_drift: float = 0.5
    statistics_drift: float = 5.0
    consistency_gap: float = 0.02
    source_consistency: float = 0.48

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value < math.inf:
                raise TTCError(f"the limit {name} must be a positive number, got {value}")


@dataclass(frozen=True)
class Policy:
    """When the guard checks, what it stores, and how soon it de-escalates.

    Args:
        limits: The thresholds of the signals.
        check_every: Images between two checks.
        recent_images: Images that averages of recent predictions span.
        history_images: Images that the averages they are compared with span.
        max_snapshots: Snapshots of the adapter to store for rollback, besides its initial state.
        snapshot_every: Healthy checks between two snapshots.
        max_events: Events to store in ``guard.events``.
        source_fraction: Fraction of the images for which both models are compared while the adapted one leads clearly;
            in doubt it is every image. 0 disables the comparison: the adapter then predicts until a check is unhealthy.
        comparison_images: Images that the averages of the comparison span.
        patience: Consecutive healthy checks before the guard steps down by one level.
        max_rejections: Consecutive rejected batches that count as an unhealthy check.

    Raises:
        TTCError: If a number is out of range.

    Example:
        >>> Policy(Limits(class_fraction=0.7), check_every=20).check_every
        20
    """

    limits: Limits = field(default_factory=Limits)
    check_every: int = 50
    recent_images: int = 200
    history_images: int = 5000
    max_snapshots: int = 5
    snapshot_every: int = 10
    max_events: int = 1000
    source_fraction: float = 0.1
    comparison_images: int = 300
    patience: int = 20
    max_rejections: int = 3

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name not in {"limits", "source_fraction"} and value < 1:
                raise TTCError(f"{name} must be a positive number, got {value}")
        if not 0 <= self.source_fraction <= 1:
            raise TTCError(f"source_fraction must be in [0, 1], got {self.source_fraction}")
