"""S(x): which samples take part in the U-step, and with which weight."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from ttc.clustering.assignment import Assignment
from ttc.core.entropy import softmax_entropy
from ttc.core.part import Part, SmallBatches, share_parts_
from ttc.core.processes import Processes
from ttc.errors import TTCError


class Selector(Part, ABC):
    """Maps an assignment to one weight per sample, detached and not negative: zero leaves a sample out.

    A selector that remembers something between batches names it in ``state_attributes``.
    """

    @property
    def never_empty(self) -> bool:
        """Whether every batch has a sample with a positive weight, so that the weights need not be inspected."""
        return False

    @abstractmethod
    def __call__(self, assignment: Assignment) -> Tensor:
        """Return the weights (N,) of a batch."""

    def share_stream_(self, processes: Processes) -> None:
        """Share a stream: an assignment has the samples of the whole batch."""
        share_parts_(self, processes)


class SelectAll(Selector):
    """Selects every sample, with weight one."""

    @property
    def never_empty(self) -> bool:
        """Whether every batch has a selected sample: it has."""
        return True

    def __call__(self, assignment: Assignment) -> Tensor:
        return torch.ones_like(assignment.entropy)


class NotSingle(Selector):
    """Selects every sample with weight one, unless the batch has one sample only: that one is left out."""

    def __call__(self, assignment: Assignment) -> Tensor:
        return torch.full_like(assignment.entropy, float(len(assignment.entropy) > 1))


@dataclass
class BelowMeanEntropy(Selector):
    """Selects the samples whose entropy is at most the mean entropy of their batch.

    .. math:: S(x) = 1 \\text{ if } H(x) \\le H_m, \\text{ else } 0

    Paper: TTC, Sec. "Sample Selection". Where rounding leaves no sample at or below the mean (equal entropies), all are
    selected.

    Args:
        on: ``"fused"`` uses the entropy of the fused prediction, ``"plain"`` that of the first view.
        inclusive: Whether a sample exactly at the mean is selected.
        image_weight: For small batches, whose mean says little: a positive w compares with a moving average over the
            stream instead, in which a batch of N weighs 1 - (1-w)^N; a batch may then be left without a sample.
    """

    state_attributes: ClassVar[tuple[str, ...]] = ("average",)
    on: str = "fused"
    inclusive: bool = True
    image_weight: float = 0.0
    average: Tensor | None = field(init=False)

    def __post_init__(self) -> None:
        if self.on not in {"fused", "plain"}:
            raise TTCError(f"select_on is 'fused' or 'plain', got '{self.on}'")
        self.average = None

    def __call__(self, assignment: Assignment) -> Tensor:
        value = assignment.entropy if self.on == "fused" else softmax_entropy(assignment.views[0].logits)
        value = value.detach()
        mean = value.mean()
        if self.image_weight:
            amount = 1 - (1 - self.image_weight) ** len(value)
            self.average = mean = mean if self.average is None else torch.lerp(self.average, mean, amount)
        chosen = value <= mean if self.inclusive else value < mean
        if self.never_empty:
            chosen = chosen | ~chosen.any()
        return chosen.to(value)

    @property
    def never_empty(self) -> bool:
        """Whether every batch has a selected sample: true when it is compared with its own mean."""
        return not self.image_weight

    def use_small_batches_(self, settings: SmallBatches) -> None:
        """Compare with a moving average over the stream instead of the mean of the batch."""
        self.image_weight = settings.image_weight


@dataclass
class ReliableAndDiverse(Selector):
    """Selects confident samples that differ from those learned before, weighted by confidence (ETA).

    Reliable: H < ``entropy_margin`` E0. Diverse: |cos(m, p)| < ``redundancy_margin`` ε, with m the moving average, from
    before the batch, of the mean probability of selected samples. Weight: exp(E0 - H).

    Args:
        entropy_margin: E0, in nats.
        redundancy_margin: ε, a cosine in [0, 1].
        momentum: The weight of the old value in the moving average m.
    """

    state_attributes: ClassVar[tuple[str, ...]] = ("mean_probability",)
    entropy_margin: float
    redundancy_margin: float
    momentum: float = 0.9
    mean_probability: Tensor | None = field(init=False)

    def __post_init__(self) -> None:
        self.mean_probability = None

    @classmethod
    def for_classes(
        cls,
        num_classes: int,
        entropy_margin: float | None = None,
        redundancy_margin: float | None = None,
        momentum: float = 0.9,
    ) -> "ReliableAndDiverse":
        """Make the selector for a number of classes; margins that are None get the published values.

        Args:
            num_classes: K.
            entropy_margin: E0, 0.4 ln K unless given.
            redundancy_margin: ε, 0.4, 0.1 and 0.05 for 10, 100 and 1,000 classes unless given; else in proportion to
                1/√K, the cosine of a confident prediction with a uniform one.
            momentum: The weight of the old value in the moving average m.

        Example:
            >>> ReliableAndDiverse.for_classes(100).redundancy_margin
            0.1
        """
        published = {10: 0.4, 100: 0.1, 1000: 0.05}
        epsilon = published.get(num_classes, min(0.95, 0.4 * math.sqrt(10 / num_classes)))
        return cls(
            entropy_margin=0.4 * math.log(num_classes) if entropy_margin is None else entropy_margin,
            redundancy_margin=epsilon if redundancy_margin is None else redundancy_margin,
            momentum=momentum,
        )

    def __call__(self, assignment: Assignment) -> Tensor:
        value = assignment.entropy.detach()
        probability = assignment.logits.detach().to(value).softmax(1)
        chosen = value < self.entropy_margin
        if self.mean_probability is not None:
            cosine = torch.cosine_similarity(self.mean_probability[None], probability, dim=1)
            chosen = chosen & (cosine.abs() < self.redundancy_margin)
        if bool(chosen.any()):
            mean = probability[chosen].mean(0)
            old = self.mean_probability
            self.mean_probability = mean if old is None else self.momentum * old + (1 - self.momentum) * mean
        return chosen * torch.exp(self.entropy_margin - value)


@dataclass
class ClassBalanced(Selector):
    """Weights samples against classes that are predicted often (DELTA's reweighting), on top of another selection.

    z, at first 1/K, is a moving average of the mean probability per class, from before the batch. A sample predicted as
    class k weighs 1 / (z_k + 1e-6), scaled to mean 1 over the batch, times its weight in ``base``.

    Args:
        base: The selection whose weights are multiplied.
        decay: The weight of the old value in the moving average z.
        image_weight: For small batches, where there is no batch to scale over: with a positive w the weight is
            1 / (K z_k), which is 1 for equal frequencies, and a batch of N weighs 1 - (1-w)^N in z.
    """

    state_attributes: ClassVar[tuple[str, ...]] = ("frequency", "base")
    base: Selector
    decay: float = 0.95
    image_weight: float = 0.0
    frequency: Tensor | None = field(init=False)

    def __post_init__(self) -> None:
        if not 0 <= self.decay <= 1:
            raise TTCError(f"the decay of class frequencies lies in [0, 1], got {self.decay}")
        self.frequency = None

    def __call__(self, assignment: Assignment) -> Tensor:
        probability = assignment.logits.detach().to(assignment.entropy).softmax(1)
        classes = probability.shape[1]
        old = torch.full_like(probability[0], 1 / classes) if self.frequency is None else self.frequency
        weights = 1 / (old[probability.argmax(1)] + 1e-6)
        weights = weights / (classes if self.image_weight else weights.mean())
        selected = self.base(assignment)
        amount = 1 - (1 - self.image_weight) ** len(weights) if self.image_weight else 1 - self.decay
        self.frequency = torch.lerp(old, probability.mean(0), amount)
        return selected * weights

    @property
    def never_empty(self) -> bool:
        """Whether every batch has a selected sample: as the base selection says."""
        return self.base.never_empty

    def use_small_batches_(self, settings: SmallBatches) -> None:
        """Average over images, and weight without scaling over the batch."""
        super().use_small_batches_(settings)
        self.image_weight = settings.image_weight
