"""Label-free signals of failing adaptation: from the predictions alone, and from a comparison with the source model."""

import math
from typing import ClassVar

import torch
from torch import Tensor

from ttc.core import Adapter, Classifier, Part, freeze_statistics
from ttc.core.entropy import softmax_entropy
from ttc.deploy.policy import Limits
from ttc.nn import EmaNorm, RunningNorm
from ttc.nn.normalization import source_energy

MINIMUM_COMPARED = 16  # images before the consistency gap is judged


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


class SourceMonitor:
    """Detects, without labels, that the source model is the better one, from a fraction of the images.

    Flip consistency is the probability that a model predicts the same class for an image and its horizontal flip; where
    statistics mislead, the adapted model has less of it than the source. Prediction drift is the change of the class
    histogram relative to chance: if classes arrive in order, both models drift; if only the domain changes, the adapted
    one does not.

    Args:
        limits: The thresholds.
        recent_images: Images that the averages span.
        block: Images per class histogram.
    """

    state_attributes: ClassVar[tuple[str, ...]] = (
        *("consistency_gap", "disagreement", "source_drift", "adapted_drift", "skipped_batches"),
    )

    def __init__(self, limits: Limits, recent_images: int, block: int) -> None:
        self.limits, self.skipped_batches = limits, 0
        self.consistency_gap, self.disagreement = MovingAverage(recent_images), MovingAverage(recent_images)
        self.source_drift = PredictionDrift(recent_images, block)
        self.adapted_drift = PredictionDrift(recent_images, block)

    def observe(self, adapter: Adapter, source: Classifier, x: Tensor, predicted: Tensor) -> None:
        """Compare the adapted and the source model on a validated batch.

        Args:
            adapter: The adapter, whose state is not changed.
            source: The source model.
            x: The validated batch (N, ...).
            predicted: The logits (N, K) that the caller received for it.
        """
        with torch.no_grad(), freeze_statistics(adapter.model):
            source_logits, adapted_logits = source(x).logits, _predict_in_context(adapter, x)
            if not bool(source_logits.isfinite().all() & adapted_logits.isfinite().all()):
                self.skipped_batches += 1  # NaN would be class 0 in every comparison
                return
            if x.ndim == 4:
                flipped = x.flip(-1)
                source_consistency = _consistency(source_logits, source(flipped).logits)
                adapted_consistency = _consistency(adapted_logits, _predict_in_context(adapter, flipped))
                self.consistency_gap.update((source_consistency - adapted_consistency).float().cpu(), len(x))
        self.source_drift.observe(source_logits)
        self.adapted_drift.observe(adapted_logits)
        disagreement = (source_logits.argmax(1) != predicted.argmax(1)).float().mean()
        self.disagreement.update(disagreement.cpu(), len(x))

    @property
    def skipped(self) -> int:
        """How many comparisons were left out because an output is not finite."""
        return self.skipped_batches + self.consistency_gap.skipped

    def needs_every_batch(self) -> bool:
        """Tell whether every batch should be compared: at the start, and while a signal of the source is suspicious."""
        return (
            self.disagreement.samples < self.disagreement.span
            or self.source_drift.ratio.value.item() > self.limits.source_prediction_drift
            or self.consistency_gap.value.item() > self.limits.consistency_gap
        )

    def signal(self) -> str | None:
        """Return why the source model is better now, in words, or None."""
        now, limits, compared = self.measurements(), self.limits, self.consistency_gap.effective_samples
        if compared >= MINIMUM_COMPARED:
            margin = 0.5 / math.sqrt(compared)
            if now["consistency_gap"] > limits.consistency_gap + margin:
                return f"the source model is more consistent under a horizontal flip, by {now['consistency_gap']:.2f}"
        drift = now["adapted_prediction_drift"]
        if drift > limits.adapted_prediction_drift and self.source_drift.exceeds(limits.source_prediction_drift):
            return f"classes arrive in order: the predictions drift {drift:.1f} times as far as by chance"
        return None

    def measurements(self) -> dict[str, float]:
        """Return the current values by name."""
        return {
            "consistency_gap": self.consistency_gap.value.item(),
            "source_prediction_drift": self.source_drift.ratio.value.item(),
            "adapted_prediction_drift": self.adapted_drift.ratio.value.item(),
            "disagreement": self.disagreement.value.item(),
        }


class PredictionDrift:
    """Measures the distance of the class histogram of a block of images from its history, relative to chance.

    By chance the ratio is 1 on average, with a variance of (π/2 - 1) / (E - 1) for E equally likely classes.

    Args:
        recent_images: Images that the ratio is averaged over; the history spans five times as many.
        block: Images per histogram.
    """

    state_attributes: ClassVar[tuple[str, ...]] = ("block_images", "counts", "history", "ratio", "variance")

    def __init__(self, recent_images: int, block: int) -> None:
        self.block, self.block_images, self.counts = block, 0, torch.zeros(())
        self.history = MovingAverage(5 * recent_images)
        self.ratio, self.variance = MovingAverage(recent_images), MovingAverage(recent_images)

    def exceeds(self, limit: float) -> bool:
        """Tell whether the ratio exceeds ``limit``, and chance by more than four standard errors."""
        images = max(1, self.ratio.effective_samples)
        return self.ratio.value.item() > max(limit, 1 + 4 * math.sqrt(self.variance.value.item() / images))

    def observe(self, logits: Tensor) -> None:
        """Include the predictions for a batch; a complete block is compared with the history and then joins it."""
        self.counts = self.counts + _class_counts(logits)
        self.block_images += len(logits)
        if self.block_images < self.block:
            return
        images, fractions = self.block_images, self.counts / self.block_images
        self.block_images, self.counts = 0, torch.zeros(())
        if self.history.samples:
            self._compare(fractions, images)
        self.history.update(fractions, images)

    def _compare(self, fractions: Tensor, images: int) -> None:
        before = self.history.effective_samples
        pooled = (images * fractions + before * self.history.value) / (images + before)
        # The expected |difference| per class when both histograms are samples of the pooled one.
        expected = (pooled * (1 - pooled) * (1 / images + 1 / before) * 2 / math.pi).sqrt()
        total = expected.sum().clamp(min=1e-6)
        classes = total.square() / expected.square().sum().clamp(min=1e-12)
        self.ratio.update((fractions - self.history.value).abs().sum() / total, images)
        self.variance.update(images * (math.pi / 2 - 1) / (classes - 1).clamp(min=1), images)


def statistics_drift(adapter: Adapter) -> float:
    """Compute how far the running statistics of a model are from those of the source, in source standard deviations.

    Args:
        adapter: Any adapter.

    Returns:
        The root of the largest :func:`ttc.nn.normalization.source_energy` of a layer; about 1 for a model whose
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


def _predict_in_context(adapter: Adapter, x: Tensor) -> Tensor:
    """Predict ``x`` with the adapted model, among the images that the adapter predicts it with."""
    logits: Tensor = adapter.model(adapter.context(x)).logits[-len(x) :]
    return logits


def _consistency(logits: Tensor, flipped: Tensor) -> Tensor:
    return (_precise(logits).softmax(1) * _precise(flipped).softmax(1)).sum(1).mean()


def _precise(logits: Tensor) -> Tensor:
    """Return ``logits`` in float32 at least: float64 stays, whose range float32 does not have."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
