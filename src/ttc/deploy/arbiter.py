"""Decide for each batch, without labels, whether the adapted or the source model predicts it."""

import math
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ttc.clustering import ClassPrior, correct_logits
from ttc.core import Adapter, Classifier, freeze_statistics
from ttc.deploy.monitors import MovingAverage
from ttc.deploy.policy import Limits

PRIOR_LEAD, PRIOR_IMAGES = 0.05, 10  # at first the source model leads by this, as if from that many images
CONCENTRATION = 0.5  # what a difference in concentration counts for, in units of flip consistency
HISTOGRAM_IMAGES = 25  # that histograms and weights span: in effect those of the last batch, unless batches are small
DOUBT = 0.12  # how far from the limit the lead of the source must be for one of the models to lead clearly
INVARIANT = 0.8  # cosine of the source's probabilities of image and flip, below which the flip has another meaning
ACCURACY_POWER = 3  # accuracy grows about with this power of flip consistency, where both are low
CHANGE = 3.5  # standard errors between a batch and the average before it, beyond which the stream has changed
SMALLEST_SPREAD = 0.2  # of the lead from image to image, so that a few alike images are no certainty
FEWEST_FOR_CHANGE = 8  # images in a batch that can show a change, or repeat
ORDERED = 0.9  # evidence that neighbouring images share classes: a single class, or a biased model, has less


class FlipComparison(NamedTuple):
    """What both models predict for a batch and its flip: logits (N, K), and flip consistencies (N,).

    Flip consistency is the probability that a model predicts the same class for an image and its horizontal flip.
    """

    source_logits: Tensor
    source_flipped: Tensor
    adapted_logits: Tensor
    adapted_flipped: Tensor
    source_consistency: Tensor
    adapted_consistency: Tensor


class Arbiter:
    """Prefers the source or the adapted model by their flip consistency, on average over recent images.

    .. math:: \\text{lead} = c_s - c_a + \\tfrac12 \\Big(\\sum_k h_{s,k}^2 - \\sum_k h_{a,k}^2\\Big)

    with the flip consistency c and the mean probabilities h of the source and of the adapted model. Consistency follows
    accuracy, for both along about the same curve: where a corruption is repaired, the adapted model has more of it;
    where the statistics of a batch mislead, because its images are of few classes, the source has. The second term
    makes the adapted model prove more where it spreads over the classes what the source assigns to a few. While neither
    leads clearly, both predict, weighted by evidence (:meth:`fuse`). Statistics mislead most where classes come in
    order; there the same order says which class is likely (:class:`ttc.clustering.ClassPrior`).

    A batch that differs from the average by more than 3.5 standard errors starts a new average, so that a change of the
    stream counts at once. At first the source is preferred, by as much as ten images can overcome.

    Args:
        limits: ``consistency_gap`` is the lead from which the source is preferred, ``source_consistency`` the
            consistency of the source below which it does not predict alone.
        span: Images that the averages span.
        num_classes: The number of classes K.

    Attributes:
        prefers_source: Whether the source model is to predict.
        repeats: Whether the last batch repeated few images, which the source model predicts as well.
        skipped_batches: Comparisons that were left out because an output is not finite.
    """

    state_attributes: ClassVar[tuple[str, ...]] = (
        *("lead", "source_consistency", "source_histogram", "adapted_histogram", "source_evidence", "adapted_evidence"),
        *("flip_similarity", "disagreement", "adapted_entropy", "prior"),
        *("prefers_source", "repeats", "skipped_batches"),
    )

    def __init__(self, limits: Limits, span: int, num_classes: int) -> None:
        self.limits, self.span = limits, span
        self.prior = ClassPrior(num_classes)
        self.source_histogram, self.adapted_histogram = (MovingAverage(HISTOGRAM_IMAGES) for _ in range(2))
        self.source_evidence, self.adapted_evidence = (MovingAverage(HISTOGRAM_IMAGES) for _ in range(2))
        self.disagreement, self.adapted_entropy, self.flip_similarity = (MovingAverage(span) for _ in range(3))
        self.prefers_source = self.repeats = False
        self.skipped_batches = 0
        self._restart()

    @property
    def rejects_adapted(self) -> bool:
        """Whether the last batch was not to be predicted by the adapted model."""
        return self.prefers_source or self.repeats

    def judge(self, comparison: FlipComparison, predicted: Tensor) -> str | None:
        """Include the comparison of a batch, and decide which model predicts it.

        Args:
            comparison: What :func:`compare_with_source` returned for it.
            predicted: The adapter's logits (N, K) for it.

        Returns:
            Why the other model is preferred from now on, or None if nothing changed.
        """
        images = len(predicted)
        self.source_histogram.update(_probabilities(comparison.source_logits).mean(0).cpu(), images)
        self.adapted_histogram.update(_probabilities(comparison.adapted_logits).mean(0).cpu(), images)
        concentration = self.source_histogram.value.square().sum() - self.adapted_histogram.value.square().sum()
        gap = (comparison.source_consistency - comparison.adapted_consistency).cpu()
        lead = gap + CONCENTRATION * concentration
        if self._has_changed(lead):
            self._restart()
        self.lead.update(lead.mean(), images)
        self.source_consistency.update(comparison.source_consistency.mean().cpu(), images)
        self.source_evidence.update(comparison.source_consistency.mean().cpu(), images)
        self.adapted_evidence.update(comparison.adapted_consistency.mean().cpu(), images)
        both = _probabilities(comparison.source_logits), _probabilities(comparison.source_flipped)
        self.flip_similarity.update(torch.cosine_similarity(*both).mean().cpu(), images)
        differs = comparison.source_logits.argmax(1) != predicted.argmax(1)
        self.disagreement.update(differs.float().mean().cpu(), images)
        before, self.prefers_source = self.prefers_source, self.lead.value.item() > self.limits.consistency_gap
        if self.prefers_source == before:
            return None
        name, side = ("source", "above") if self.prefers_source else ("adapted", "below")
        now, limit = self.lead.value.item(), self.limits.consistency_gap
        return f"the {name} model predicts: the lead of the source in flip consistency is {now:.2f}, {side} {limit:g}"

    def fuse(self, comparison: FlipComparison, predicted: Tensor) -> Tensor:
        """Return the logits for a batch that was judged.

        Where both predict, it is with their mean probability of an image and its flip, which are known by then; the
        flip is left out where it changes what the source sees, as with digits (:data:`INVARIANT`).

        Args:
            comparison: What :func:`compare_with_source` returned for it.
            predicted: The adapter's logits (N, K).

        Returns:
            ``predicted`` itself where the adapted model leads clearly; the source's where it leads and is consistent,
            corrected by the classes of its neighbours where they come in order; else those of both, weighted by the
            cube of their recent flip consistency, which follows accuracy.
        """
        if self._leads_clearly():
            return predicted
        if self.prefers_source and self.source_consistency.value.item() >= self.limits.source_consistency:
            return self._correct_by_order(comparison.source_logits)
        flips = self.flip_similarity.value.item() >= INVARIANT
        source = _mean_of_logs(comparison.source_logits, comparison.source_flipped, 0.5 if flips else 1)
        adapted = _mean_of_logs(predicted, comparison.adapted_flipped, 0.5 if flips else 1)
        weights = [average.value.item() ** ACCURACY_POWER for average in (self.source_evidence, self.adapted_evidence)]
        fraction = weights[0] / max(sum(weights), 1e-30)
        return _mean_of_logs(source, adapted, fraction).to(predicted.dtype)

    def _correct_by_order(self, logits: Tensor) -> Tensor:
        """Correct predictions of the source by those of their neighbours, where classes come in order.

        It is an order only where statistics mislead the adapted model, so that the source leads clearly, and where the
        source is consistent on this very batch: else it predicts few classes because it fails.
        """
        if self.source_evidence.value.item() < self.limits.source_consistency:
            self.prior = ClassPrior(self.prior.num_classes)
            return logits
        prior = self.prior(logits)
        clear = self.lead.value.item() > self.limits.consistency_gap + DOUBT
        return correct_logits(logits, prior) if clear and self.prior.correlation > ORDERED else logits

    def judge_variety(self, x: object) -> str | None:
        """Note whether a batch repeats few images: its statistics are no sample of the stream, nor worth learning.

        Args:
            x: The batch (N, ...), not necessarily valid.

        Returns:
            What is new since the batch before, or None.
        """
        images = distinct = 0
        if isinstance(x, Tensor) and x.ndim > 1 and x.layout is torch.strided:
            images = len(x)
            distinct = count_distinct(x) if images >= FEWEST_FOR_CHANGE else images
        before, self.repeats = self.repeats, 2 * distinct < images
        if self.repeats == before:
            return None
        return f"a batch of {images} contains only {distinct} distinct images" if self.repeats else "batches vary again"

    def is_in_doubt(self) -> bool:
        """Tell whether the next batch is compared in any case: at first, and unless the adapted model leads clearly."""
        return self.lead.samples < self.span or not self._leads_clearly()

    def is_surprised_by(self, entropies: Tensor) -> bool:
        """Include the entropies (N,) of adapted predictions; tell whether they are far from those before.

        This costs no forward pass, and shows which of the batches that are not compared otherwise should be.
        """
        mean, before = entropies.mean().float().cpu(), self.adapted_entropy.value
        spread = entropies.std().item() if len(entropies) > 1 else math.inf
        known = self.adapted_entropy.samples >= FEWEST_FOR_CHANGE
        self.adapted_entropy.update(mean, len(entropies))
        return known and abs((mean - before).item()) > 3 * max(spread, 1e-3) / math.sqrt(len(entropies))

    def measurements(self) -> dict[str, float]:
        """Return the current values by name."""
        return {
            "source_lead": self.lead.value.item(),
            "source_consistency": self.source_consistency.value.item(),
            "disagreement": self.disagreement.value.item(),
        }

    def _leads_clearly(self) -> bool:
        """Tell whether the adapted model leads by enough to predict alone."""
        return self.lead.value.item() < self.limits.consistency_gap - DOUBT

    def _restart(self) -> None:
        self.lead, self.source_consistency = MovingAverage(self.span), MovingAverage(self.span)
        self.lead.update(torch.tensor(PRIOR_LEAD), PRIOR_IMAGES)

    def _has_changed(self, lead: Tensor) -> bool:
        if len(lead) < FEWEST_FOR_CHANGE or self.lead.samples == PRIOR_IMAGES:
            return False
        spread = max(lead.std().item(), SMALLEST_SPREAD)
        error = spread * math.sqrt(1 / len(lead) + 1 / self.lead.effective_samples)
        return abs(lead.mean().item() - self.lead.value.item()) > CHANGE * error


@torch.no_grad()
def compare_with_source(adapter: Adapter, source: Classifier, x: Tensor) -> FlipComparison | None:
    """Predict a batch and its flip with the source and the adapted network: four forward passes, nothing changes.

    Networks are compared rather than methods, because the fused output of TTC is the same for an image and its flip.

    Args:
        adapter: The adapter, whose state is not changed.
        source: The source model.
        x: The validated batch (N, C, H, W).

    Returns:
        The comparison, or None if an output is not finite.
    """
    flipped = x.flip(-1)
    with freeze_statistics(adapter.model):
        source_logits, source_flipped = source(x).logits, source(flipped).logits
        adapted_logits, adapted_flipped = (_predict_in_context(adapter, images) for images in (x, flipped))
    consistencies = _consistency(source_logits, source_flipped), _consistency(adapted_logits, adapted_flipped)
    finite = source_logits.isfinite().all() & (consistencies[0] + consistencies[1]).isfinite().all()
    found = FlipComparison(source_logits, source_flipped, adapted_logits, adapted_flipped, *consistencies)
    return found if bool(finite) else None


def count_distinct(x: Tensor) -> int:
    """Count the images of a batch that differ from all others.

    Example:
        >>> count_distinct(torch.stack([torch.zeros(3, 4, 4), torch.ones(3, 4, 4), torch.zeros(3, 4, 4)]))
        2
    """
    pixels = x.flatten(1)
    weights = torch.arange(1, pixels.shape[1] + 1, device=x.device).sqrt()
    return len((pixels.float() * weights).sum(1).unique())  # a projection: far cheaper than comparing all pixels


def _predict_in_context(adapter: Adapter, x: Tensor) -> Tensor:
    """Predict ``x`` with the adapted model, among the images that the adapter predicts it with."""
    logits: Tensor = adapter.model(adapter.context(x)).logits[-len(x) :]
    return logits


def _consistency(logits: Tensor, flipped: Tensor) -> Tensor:
    """Return the probability (N,) that two predictions for the same image agree."""
    return (_probabilities(logits) * _probabilities(flipped)).sum(1)


def _mean_of_logs(one: Tensor, other: Tensor, fraction: float = 0.5) -> Tensor:
    """Return the logarithm of the mean probability of two predictions, the first weighted by ``fraction``."""
    logs = [logits.to(_precise(logits)).log_softmax(1) for logits in (one, other)]
    smallest = 1e-30  # of a weight: its logarithm must be finite
    return torch.logaddexp(logs[0] + math.log(max(fraction, smallest)), logs[1] + math.log(max(1 - fraction, smallest)))


def _probabilities(logits: Tensor) -> Tensor:
    return logits.to(_precise(logits)).softmax(1).float()


def _precise(logits: Tensor) -> torch.dtype:
    return torch.promote_types(logits.dtype, torch.float32)
