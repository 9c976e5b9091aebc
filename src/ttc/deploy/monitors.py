"""Label-free signals of failing adaptation, from predictions, running statistics and dropped batches."""

import math
from typing import ClassVar

import torch
from torch import Tensor

from ttc.core import Adapter, Part
from ttc.core.entropy import softmax_entropy
from ttc.deploy.policy import Limits
from ttc.nn import EmaNorm, RunningNorm
from ttc.nn.plausibility import source_energy


class MovingAverage:
    """An exponential moving average over about ``span`` samples, exact until there are that many.

    A mean that is not finite is left out and counted in ``skipped``: it would make every later value NaN.

    Args:
        span: The number of samples the average spans.

    Example:
        >>> average = MovingAverage(100)
        >>> average.update(torch.tensor(1.0), samples=3)
        >>> average.update(torch.tensor(5.0), samples=1)
        >>> average.value.item()
        2.0
    """

    state_attributes: ClassVar[tuple[str, ...]] = ("samples", "value", "skipped")

    def __init__(self, span: int) -> None:
        self.span, self.samples, self.skipped = span, 0, 0
        self.value = torch.zeros(())

    @property
    def effective_samples(self) -> int:
        """How many samples the current value rests on."""
        return min(self.samples, self.span)

    def update(self, mean: Tensor, samples: int) -> None:
        """Include the mean of a number of new samples."""
        if not bool(mean.isfinite().all()):
            self.skipped += 1
            return
        self.samples += samples
        weight = max(1 - (1 - 1 / self.span) ** samples, samples / self.samples)
        self.value = mean if self.samples == samples else torch.lerp(self.value, mean, weight)


class PredictionMonitor:
    """Detects collapse from predictions alone: into few classes, or into overconfidence.

    Args:
        limits: The thresholds.
        recent_images: Images that the recent averages span.
        history_images: Images that the averages of healthy checks span.
    """

    state_attributes: ClassVar[tuple[str, ...]] = ("histogram", "entropy", "usual_classes", "usual_entropy")

    def __init__(self, limits: Limits, recent_images: int, history_images: int) -> None:
        self.limits = limits
        self.histogram, self.entropy = MovingAverage(recent_images), MovingAverage(recent_images)
        self.usual_classes, self.usual_entropy = MovingAverage(history_images), MovingAverage(history_images)

    def observe(self, logits: Tensor) -> None:
        """Include the predictions for a batch, logits (N, K)."""
        self.histogram.update(_class_counts(logits) / len(logits), len(logits))
        self.entropy.update(softmax_entropy(_precise(logits)).mean().float().cpu(), len(logits))

    @property
    def skipped(self) -> int:
        """How many values were left out because they are not finite."""
        return self.histogram.skipped + self.entropy.skipped

    def signal(self) -> str | None:
        """Return what is unhealthy now, in words, or None."""
        now, limits = self.measurements(), self.limits
        usual_classes, usual_entropy = self.usual_classes.value.item(), self.usual_entropy.value.item()
        if now["largest_fraction"] > limits.class_fraction and self.histogram.value.numel() > 2:
            return f"{now['largest_fraction']:.0%} of recent predictions are one class"
        classes = now["effective_classes"]
        if classes < limits.effective_classes * usual_classes:
            return f"recent predictions cover {classes:.1f} effective classes, usually {usual_classes:.1f}"
        if now["entropy"] < limits.entropy * usual_entropy:
            return f"the mean entropy fell to {now['entropy']:.3f}, usually {usual_entropy:.3f}"
        return None

    @property
    def has_recent(self) -> bool:
        """Whether there are recent predictions to judge."""
        return self.histogram.samples > 0

    @property
    def has_history(self) -> bool:
        """Whether there was a healthy check to compare with."""
        return self.usual_classes.samples > 0

    def discard_recent(self) -> None:
        """Clear the recent averages but not the history: after a rollback they describe another model."""
        self.histogram, self.entropy = MovingAverage(self.histogram.span), MovingAverage(self.entropy.span)

    def extend_history(self, samples: int) -> None:
        """Include the recent averages in the history, after a healthy check of ``samples`` images."""
        now = self.measurements()
        self.usual_classes.update(torch.tensor(now["effective_classes"]), samples)
        self.usual_entropy.update(torch.tensor(now["entropy"]), samples)

    def measurements(self) -> dict[str, float]:
        """Return the current values by name."""
        fractions = self.histogram.value
        observed = self.histogram.samples > 0
        return {
            "entropy": self.entropy.value.item(),
            "effective_classes": torch.special.entr(fractions).sum().exp().item() if observed else 0.0,
            "largest_fraction": fractions.max().item() if observed else 0.0,
        }


def statistics_drift(adapter: Adapter) -> float:
    """Compute how far the running statistics of a model are from those of the source, in source standard deviations.

    Args:
        adapter: Any adapter.

    Returns:
        The root of the largest :func:`ttc.nn.plausibility.source_energy` of a layer; about 1 for a model whose
        statistics are the source's, 0 when none are updated, NaN when a variance is negative or a value not finite.
    """
    largest = 0.0
    for layer in adapter.model.modules():
        if isinstance(layer, EmaNorm | RunningNorm) and layer.mean is not None and layer.variance is not None:
            for mean, variance in zip(
                layer.mean.view(-1, layer.num_features), layer.variance.view(-1, layer.num_features), strict=True
            ):
                energy = source_energy(layer, mean, variance)
                if not energy >= 0 or bool((variance < 0).any()):
                    return math.nan
                largest = max(largest, energy)
    return math.sqrt(largest)


def count_dropped_batches(part: Part) -> int:
    """Count the batches that a part, or a part of it, dropped because their gradient was not finite.

    Args:
        part: An adapter, or a part of one.
    """
    return part.dropped_batches + sum(map(count_dropped_batches, part.parts()))


def _class_counts(logits: Tensor) -> Tensor:
    return logits.argmax(1).bincount(minlength=logits.shape[1]).cpu()


def _precise(logits: Tensor) -> Tensor:
    """Return ``logits`` in float32 at least: float64 stays, whose range float32 does not have."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
