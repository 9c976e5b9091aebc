"""S(x): which samples take part in the U-step, as weights; zero leaves a sample out."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from ttc.clustering.assignment import Assignment, softmax_entropy
from ttc.errors import TTCError


class Selector(Protocol):
    """Maps an assignment to weights (N,), detached and not negative; ``reset`` forgets what it remembers.

    One that remembers names those attributes in ``holds``, as an adapter does. One that never leaves a batch without a
    sample says so with ``always_some = True``, which spares the look at the weights.
    """

    def __call__(self, assignment: Assignment) -> Tensor: ...

    def reset(self) -> None: ...


class Everything:
    """Every sample with weight one."""

    always_some = True

    def __call__(self, assignment: Assignment) -> Tensor:
        return torch.ones_like(assignment.entropy)

    def reset(self) -> None:
        """Nothing to forget."""


@dataclass
class BelowMeanEntropy:
    """The samples whose entropy is at most the mean entropy of their batch.

    .. math:: S(x) = 1 \\text{ if } H(x) \\le H_m, \\text{ else } 0

    Paper: TTC, Sec. "Sample Selection". Where rounding leaves no sample at or below the mean (equal entropies), all are
    kept. ``on="plain"`` reads the entropy of the first view instead of the fused one.

    For small batches, whose mean says little, a positive ``image_weight`` w compares with a moving mean over the stream
    instead, in which a batch of N weighs 1 - (1-w)^N; then no sample may be selected.
    """

    holds: ClassVar[tuple[str, ...]] = ("recent",)
    on: str = "fused"
    inclusive: bool = True
    image_weight: float = 0.0
    recent: Tensor | None = None

    def __post_init__(self) -> None:
        if self.on not in {"fused", "plain"}:
            raise TTCError(f"select_on is 'fused' or 'plain', got '{self.on}'")

    def __call__(self, assignment: Assignment) -> Tensor:
        value = assignment.entropy if self.on == "fused" else softmax_entropy(assignment.views[0].logits)
        value = value.detach()
        mean = value.mean()
        if self.image_weight:
            amount = 1 - (1 - self.image_weight) ** len(value)
            self.recent = mean = mean if self.recent is None else torch.lerp(self.recent, mean, amount)
        chosen = value <= mean if self.inclusive else value < mean
        if self.always_some:
            chosen = chosen | ~chosen.any()
        return chosen.to(value)

    @property
    def always_some(self) -> bool:
        """Compared with its own mean, a batch is never left without a sample."""
        return not self.image_weight

    def reset(self) -> None:
        """Forget the moving mean."""
        self.recent = None


@dataclass
class ReliableAndDiverse:
    """ETA's selection: confident samples that differ from what was already learned, the surer the heavier.

    Reliable: H < ``entropy_margin`` E0. Diverse: |cos(m, p)| < ``redundancy_margin`` ε, with m the moving average, from
    before the batch, of the mean probability of selected samples. Weight: exp(E0 - H).
    """

    holds: ClassVar[tuple[str, ...]] = ("mean_probability",)
    entropy_margin: float
    redundancy_margin: float
    momentum: float = 0.9
    mean_probability: Tensor | None = None

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

    def reset(self) -> None:
        """Forget the moving average."""
        self.mean_probability = None
