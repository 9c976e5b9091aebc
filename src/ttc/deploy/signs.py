"""Label-free signs that an adaptation goes wrong: from the answers alone, and from comparing with the source model."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ttc.core import Adapter, Classifier
from ttc.core.normalization import still
from ttc.errors import TTCError


@dataclass(frozen=True)
class Limits:
    """Where the signs begin; the defaults are explained in docs/reliability.md.

    ``share``: of the recent answers in one class. ``classes``: recent effective number of classes over its history.
    ``entropy``: recent mean entropy over its history. ``drift``: ‖θ - θ₀‖ / ‖θ₀‖. ``steadiness``: by how much more
    often the source keeps its answer for a mirrored image than the adapted model does.
    """

    share: float = 0.9
    classes: float = 0.5
    entropy: float = 0.2
    drift: float = 0.5
    steadiness: float = 0.03

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value < math.inf:
                raise TTCError(f"the limit {name} is a positive number, got {value}")


class Average:
    """A mean over the last ``memory`` samples or so, exact until there are that many."""

    def __init__(self, memory: int) -> None:
        self.memory, self.seen = memory, 0
        self.value = torch.zeros(())

    def add(self, value: Tensor, samples: int) -> None:
        """Take in the mean ``value`` of a number of samples."""
        self.seen += samples
        amount = max(1 - (1 - 1 / self.memory) ** samples, samples / self.seen)
        self.value = value if self.seen == samples else torch.lerp(self.value, value, amount)


class AnswerSigns:
    """What the answers say: are they sinking into few classes, or into false certainty?"""

    def __init__(self, limits: Limits, memory: int, history: int) -> None:
        self.limits = limits
        self.histogram, self.entropy = Average(memory), Average(memory)
        self.usual_classes, self.usual_entropy = Average(history), Average(history)

    def observe(self, logits: Tensor) -> None:
        """Take in the answer for a batch."""
        log_probability = logits.float().log_softmax(1).clamp(min=-1e4)  # classes that a method ruled out stay finite
        entropy = -(log_probability.exp() * log_probability).sum(1).mean()
        votes = logits.argmax(1).bincount(minlength=logits.shape[1]) / len(logits)
        self.histogram.add(votes.cpu(), len(logits))
        self.entropy.add(entropy.cpu(), len(logits))

    def found(self) -> str | None:
        """What is wrong now, in a sentence, or None."""
        now, limits = self.measures(), self.limits
        usual_classes, usual_entropy = self.usual_classes.value.item(), self.usual_entropy.value.item()
        if now["largest_share"] > limits.share and self.histogram.value.numel() > 2:
            return f"{now['largest_share']:.0%} of the recent answers are one class"
        if now["effective_classes"] < limits.classes * usual_classes:
            return f"answers in {now['effective_classes']:.1f} effective classes, usually {usual_classes:.1f}"
        if now["entropy"] < limits.entropy * usual_entropy:
            return f"the mean entropy fell to {now['entropy']:.3f}, usually {usual_entropy:.3f}"
        return None

    @property
    def ever_healthy(self) -> bool:
        """Whether there is a history to compare with."""
        return self.usual_classes.seen > 0

    def forget_recent(self) -> None:
        """Judge anew, against the old history: what was answered before a rollback says nothing of the state after."""
        self.histogram, self.entropy = Average(self.histogram.memory), Average(self.entropy.memory)

    def remember(self, samples: int) -> None:
        """Let a healthy moment become history."""
        now = self.measures()
        self.usual_classes.add(torch.tensor(now["effective_classes"]), samples)
        self.usual_entropy.add(torch.tensor(now["entropy"]), samples)

    def measures(self) -> dict[str, float]:
        """The present values."""
        share = self.histogram.value
        effective = torch.special.entr(share).sum().exp().item() if self.histogram.seen else 0.0
        return {
            "entropy": self.entropy.value.item(),
            "effective_classes": effective,
            "largest_share": share.max().item() if self.histogram.seen else 0.0,
        }


class SourceSigns:
    """What the source model says: on a fraction of the images, is the adapted network less steady than it?

    A network that still sees the object keeps its answer when the image is mirrored. Where batches lack variety, so
    that their statistics mislead, the adapted network keeps it less often than the source does: a label-free
    comparison of the two that works even where both are wrong about the histogram.
    """

    def __init__(self, limits: Limits, memory: int) -> None:
        self.limits = limits
        self.lead, self.disagreement = Average(memory), Average(memory)  # lead: of the source in steadiness

    def observe(self, adapter: Adapter, source: Classifier, x: Tensor, answer: Tensor) -> None:
        """Compare the two networks on a checked batch."""
        with torch.no_grad(), still(adapter.model):
            logits = source(x).logits
            if x.ndim == 4:
                mirrored = x.flip(-1)
                theirs = _same(logits, source(mirrored).logits)
                ours = _same(adapter.model(x).logits, adapter.model(mirrored).logits)
                self.lead.add((theirs - ours).cpu(), len(x))
            self.disagreement.add(1 - _same(logits, answer).cpu(), len(x))

    @property
    def images(self) -> int:
        """How many images the present lead rests on."""
        return min(self.lead.seen, self.lead.memory)

    def suspicious(self) -> bool:
        """Whether a closer look is worth its cost."""
        return self.images > 0 and self.lead.value.item() > self.limits.steadiness

    def found(self) -> str | None:
        """What is wrong now, in a sentence, or None: the lead must exceed its limit by more than chance explains."""
        lead = self.lead.value.item()
        if self.images >= 16 and lead > self.limits.steadiness + 1 / math.sqrt(self.images):
            return f"mirrored images change {lead:.0%} more of the adapted model's answers than of the source's"
        return None

    def measures(self) -> Mapping[str, float]:
        """The present values."""
        return {"source_lead": self.lead.value.item(), "disagreement": self.disagreement.value.item()}


def drift_of(adapter: Adapter) -> float:
    """How far the trained parameters went from the start, ‖θ - θ₀‖ / ‖θ₀‖; NaN or infinite when they are."""
    pairs = [
        (parameter.detach(), adapter.start.tensors[name].to(parameter.device))
        for name, parameter in adapter.model.named_parameters()
        if parameter.requires_grad
    ]
    if not pairs:
        return 0.0
    now, start = [list(part) for part in zip(*pairs, strict=True)]
    moved = torch.stack(torch._foreach_norm(torch._foreach_sub(now, start))).float().norm()
    return float(moved / torch.stack(torch._foreach_norm(start)).float().norm().clamp(min=1e-12))


def dropped_by(adapter: Adapter) -> int:
    """How many batches the parts of an adapter did not learn from because the gradient was not finite."""
    parts = [getattr(adapter, name) for name in adapter.holds]
    return sum(dropped_by(part) if isinstance(part, Adapter) else getattr(part, "dropped", 0) for part in parts)


def _same(one: Tensor, other: Tensor) -> Tensor:
    return (one.argmax(1) == other.argmax(1)).float().mean()
