"""Decide for each batch, without labels, whether the adapted or the source model predicts it."""

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from ttc.clustering import ClassPrior, correct_logits
from ttc.deploy.flip_comparison import FlipComparison, FlipPair, probabilities
from ttc.deploy.monitors import MovingAverage
from ttc.deploy.policy import Limits

PRIOR_LEAD, PRIOR_IMAGES = 0.05, 10  # at first the source model leads by this, as if from that many images
CONCENTRATION = 0.5  # what a difference in concentration counts for, in units of flip consistency
HISTOGRAM_IMAGES = 25  # that histograms and weights span: in effect those of the last batch, unless batches are small
DOUBT = 0.12  # how far from the limit the lead of the source must be for one of the models to lead clearly
CONFIDENT = 0.8  # probability from which a prediction of the source tells whether the flip keeps the class
INVARIANT = (
    0.8  # how many of these must agree on the flip: 0.89 or more on photographs, 0.74 where it has another meaning
)
SHARPNESS = 10  # the power of flip consistency that weights predictions: close to choosing, but for a tie
SMALLEST_EVIDENCE = 1e-3  # its power must not be 0
CHANGE = 3.5  # standard errors between a batch and the average before it, beyond which the stream has changed
SMALLEST_SPREAD = 0.2  # of the lead from image to image, so that a few alike images are no certainty
FEWEST_FOR_CHANGE = 8  # images in a batch that can show a change, or repeat
ORDERED = 0.9  # evidence that neighbouring images share classes: a single class, or a biased model, has less
DOMINANT = 0.35  # the excess of one class with blended statistics, 1 if it has all images, that shows a single class


class Arbiter:
    """Prefers the source or the adapted model by their flip consistency, on average over recent images.

    .. math:: \\text{lead} = c_s - c_a + \\tfrac12 \\Big(\\sum_k h_{s,k}^2 - \\sum_k h_{a,k}^2\\Big)

    with the flip consistency c and the mean probabilities h of the source and of the adapted model. Consistency follows
    accuracy, for both along about the same curve: where a corruption is repaired, the adapted model has more of it;
    where the statistics of a batch mislead, because its images are of few classes, the source has. The second term
    makes the adapted model prove more where it spreads over the classes what the source assigns to a few. Unless the
    adapted model leads clearly, the source predicts together with the same network whose statistics are blended with
    those of the batch in its first layers, which repairs part of a corruption whatever the classes are (:meth:`fuse`).
    Statistics mislead most where classes come in order; there the same order says which class is likely
    (:class:`ttc.clustering.ClassPrior`).

    A batch that differs from the average by more than 3.5 standard errors starts a new average, so that a change of the
    stream counts at once. At first the source is preferred, by as much as ten images can overcome.

    Args:
        limits: ``consistency_gap`` is the lead from which the source is preferred, ``source_consistency`` the
            consistency of the source below which it does not predict without blended statistics.
        span: Images that the averages span.
        num_classes: The number of classes K.

    Attributes:
        prefers_source: Whether the source model is to predict.
        repeats: Whether the last batch repeated few images, which the source model predicts as well.
        skipped_batches: Comparisons that were left out because an output is not finite.
    """

    state_attributes: ClassVar[tuple[str, ...]] = (
        *("lead", "source_consistency", "source_histogram", "blended_histogram", "adapted_histogram"),
        *("source_evidence", "blended_evidence", "adapted_evidence"),
        *("flip_agreement", "disagreement", "adapted_entropy", "prior"),
        *("prefers_source", "repeats", "skipped_batches"),
    )

    def __init__(self, limits: Limits, span: int, num_classes: int) -> None:
        self.limits, self.span = limits, span
        self.prior = ClassPrior(num_classes)
        self.source_histogram, self.blended_histogram, self.adapted_histogram = _short_averages(3)
        self.source_evidence, self.blended_evidence, self.adapted_evidence = _short_averages(3)
        self.disagreement, self.adapted_entropy, self.flip_agreement = (MovingAverage(span) for _ in range(3))
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
        source, blended, adapted = comparison
        self.source_histogram.update(source.mean_probability(), images)
        self.blended_histogram.update(blended.mean_probability(), images)
        self.adapted_histogram.update(adapted.mean_probability(), images)
        concentration = self.source_histogram.value.square().sum() - self.adapted_histogram.value.square().sum()
        lead = (source.consistency - adapted.consistency).cpu() + CONCENTRATION * concentration
        if self._has_changed(lead):
            self._restart()
        self.lead.update(lead.mean(), images)
        self.source_consistency.update(source.consistency.mean().cpu(), images)
        self.source_evidence.update(source.consistency.mean().cpu(), images)
        self.blended_evidence.update(blended.consistency.mean().cpu(), images)
        self.adapted_evidence.update(adapted.consistency.mean().cpu(), images)
        self._include_agreement(source)
        differs = source.logits.argmax(1) != predicted.argmax(1)
        self.disagreement.update(differs.float().mean().cpu(), images)
        before, self.prefers_source = self.prefers_source, self.lead.value.item() > self.limits.consistency_gap
        if self.prefers_source == before:
            return None
        name, side = ("source", "above") if self.prefers_source else ("adapted", "below")
        now, limit = self.lead.value.item(), self.limits.consistency_gap
        return f"the {name} model predicts: the lead of the source in flip consistency is {now:.2f}, {side} {limit:g}"

    def fuse(self, comparison: FlipComparison, predicted: Tensor) -> Tensor:
        """Return the logits for a batch that was judged.

        Unless the adapted model leads clearly, it is the mean probability of several networks for an image and its
        flip, each weighted by the tenth power of its recent flip consistency:

        - the source with blended statistics;
        - the source, where it is consistent, and blending does not change which class it predicts most. If it does,
          the corruption had made that class;
        - the adapted model, where the source is not preferred.

        The flip is left out where it changes what the source sees, as with digits (:data:`INVARIANT`).

        Args:
            comparison: What :func:`ttc.deploy.flip_comparison.compare_with_source` returned for it.
            predicted: The adapter's logits (N, K).

        Returns:
            ``predicted`` itself where the adapted model leads clearly; else the logarithm of that mean, corrected by
            the classes of neighbouring images where they come in order.
        """
        if self._leads_clearly():
            return predicted
        chosen = [(comparison.blended, self.blended_evidence)]
        if self._trusts_source():
            chosen.append((comparison.source, self.source_evidence))
        if not self.prefers_source:
            chosen.append((comparison.adapted._replace(logits=predicted), self.adapted_evidence))
        weights = [max(evidence.value.item(), SMALLEST_EVIDENCE) ** SHARPNESS for _, evidence in chosen]
        flips = self.flip_agreement.samples > 0 and self.flip_agreement.value.item() >= INVARIANT
        fused = _log_mean_probability([pair for pair, _ in chosen], weights, flips=flips)
        return (self._correct_by_order(fused) if self.prefers_source else fused).to(predicted.dtype)

    def _include_agreement(self, source: FlipPair) -> None:
        """Include how often confident predictions of the source stay the same under the flip."""
        confident = probabilities(source.logits).amax(1) > CONFIDENT
        if bool(confident.any()):
            agrees = source.logits[confident].argmax(1) == source.flipped[confident].argmax(1)
            self.flip_agreement.update(agrees.float().mean().cpu(), len(agrees))

    def _trusts_source(self) -> bool:
        """Tell whether the source is consistent on this batch and its most frequent class withstands blending."""
        consistent = self.source_evidence.value.item() >= self.limits.source_consistency
        return consistent and bool(self.source_histogram.value.argmax() == self.blended_histogram.value.argmax())

    def _correct_by_order(self, logits: Tensor) -> Tensor:
        """Correct predictions by those of their neighbours, where classes come in order.

        It is an order only where statistics mislead the adapted model, so that the source leads clearly, and where the
        source is consistent on this very batch: else it predicts few classes because it fails. By the order of its
        predictions a single class cannot be told from a biased source; but blended statistics take the bias away, and a
        class that dominates with them is in the images.
        """
        consistent = self.source_evidence.value.item() >= self.limits.source_consistency
        if not consistent and self.blended_evidence.value.item() < self.limits.source_consistency:
            self.prior = ClassPrior(self.prior.num_classes)
            return logits
        prior = self.prior(logits)
        clear = self.lead.value.item() > self.limits.consistency_gap + DOUBT
        ordered = consistent and self.prior.correlation > ORDERED
        return correct_logits(logits, prior) if clear and (ordered or self._has_single_class()) else logits

    def _has_single_class(self) -> bool:
        """Tell whether one class dominates the recent images, as far as the source with blended statistics sees."""
        chance = 1 / self.prior.num_classes
        return self.blended_histogram.value.max().item() >= chance + DOMINANT * (1 - chance)

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


def count_distinct(x: Tensor) -> int:
    """Count the images of a batch that differ from all others.

    Example:
        >>> count_distinct(torch.stack([torch.zeros(3, 4, 4), torch.ones(3, 4, 4), torch.zeros(3, 4, 4)]))
        2
    """
    pixels = x.flatten(1)
    weights = torch.arange(1, pixels.shape[1] + 1, device=x.device).sqrt()
    return len((pixels.float() * weights).sum(1).unique())  # a projection: far cheaper than comparing all pixels


def _short_averages(count: int) -> list[MovingAverage]:
    return [MovingAverage(HISTOGRAM_IMAGES) for _ in range(count)]


def _log_mean_probability(pairs: Sequence[FlipPair], weights: Sequence[float], *, flips: bool) -> Tensor:
    """Return the logarithm of the weighted mean probability (N, K), over the flips too or of the batch alone."""
    parts = []
    for pair, weight in zip(pairs, weights, strict=True):
        views = (pair.logits, pair.flipped) if flips else (pair.logits,)
        offset = math.log(weight / sum(weights) / len(views))
        parts += [view.to(torch.promote_types(view.dtype, torch.float32)).log_softmax(1) + offset for view in views]
    return torch.stack(parts).logsumexp(0)
