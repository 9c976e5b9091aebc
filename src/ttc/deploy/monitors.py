"""Label-free signs that an adaptation goes wrong: from the answers alone, and from comparing with the source model."""

import math
from typing import ClassVar

import torch
from torch import Tensor

from ttc.core import Adapter, Classifier
from ttc.nn.normalization import still
from ttc.deploy.policy import Limits


class Average:
    """A mean over the last ``memory`` samples or so, exact until there are that many."""

    state_attributes: ClassVar[tuple[str, ...]] = ("seen", "value")

    def __init__(self, memory: int) -> None:
        self.memory, self.seen = memory, 0
        self.value = torch.zeros(())

    def add(self, value: Tensor, samples: int) -> None:
        """Take in the mean ``value`` of a number of samples."""
        self.seen += samples
        amount = max(1 - (1 - 1 / self.memory) ** samples, samples / self.seen)
        self.value = value if self.seen == samples else torch.lerp(self.value, value, amount)


class PredictionMonitor:
    """What the answers say: are they sinking into few classes, or into false certainty?"""

    state_attributes: ClassVar[tuple[str, ...]] = ("histogram", "entropy", "usual_classes", "usual_entropy")

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


class SourceMonitor:
    """What the source model says, on a fraction of the images: is it the better of the two networks, label-free?

    Two judges. Steadiness: the probability that a network gives an image and its mirror image the same class, which
    rewards being sure of the same thing twice; where statistics mislead, the adapted network has less of it than the
    source. Movement: how far the histogram of predictions goes from its own history, over what chance explains; where
    classes come in order both networks move, where only the domain changes the adapted one does not.
    """

    state_attributes: ClassVar[tuple[str, ...]] = ("lead", "disagreement", "source_moves", "adapted_moves")

    def __init__(self, limits: Limits, memory: int, block: int) -> None:
        self.limits = limits
        self.lead, self.disagreement = Average(memory), Average(memory)  # lead: of the source in steadiness
        self.source_moves, self.adapted_moves = Movement(memory, block), Movement(memory, block)

    def observe(self, adapter: Adapter, source: Classifier, x: Tensor, answer: Tensor) -> None:
        """Compare the two networks on a checked batch."""
        with torch.no_grad(), still(adapter.model):
            theirs, ours = source(x).logits, _in_context(adapter, x)
            if x.ndim == 4:
                mirrored = x.flip(-1)
                lead = _steadiness(theirs, source(mirrored).logits) - _steadiness(ours, _in_context(adapter, mirrored))
                self.lead.add(lead.cpu(), len(x))
        self.source_moves.observe(theirs)
        self.adapted_moves.observe(ours)
        self.disagreement.add((theirs.argmax(1) != answer.argmax(1)).float().mean().cpu(), len(x))

    @property
    def images(self) -> int:
        """How many images the present lead rests on."""
        return min(self.lead.seen, self.lead.memory)

    def undecided(self) -> bool:
        """Whether every image is worth comparing: at the beginning, and while the source leads or moves."""
        moves = self.source_moves.ratio.value.item() > self.limits.source_movement
        return moves or self.disagreement.seen < self.lead.memory or self.lead.value.item() > self.limits.steadiness

    def found(self) -> str | None:
        """What is wrong now, in a sentence, or None."""
        now, limits = self.measures(), self.limits
        if self.images >= 16 and now["source_lead"] > limits.steadiness + 0.5 / math.sqrt(self.images):
            return f"on mirrored images the source is steadier by {now['source_lead']:.2f}"
        moved = now["adapted_movement"] > limits.adapted_movement
        if moved and self.source_moves.beyond(limits.source_movement):
            return f"classes come in order: the answers move {now['adapted_movement']:.1f} times as far as by chance"
        return None

    def measures(self) -> dict[str, float]:
        """The present values."""
        return {
            "source_lead": self.lead.value.item(),
            "source_movement": self.source_moves.ratio.value.item(),
            "adapted_movement": self.adapted_moves.ratio.value.item(),
            "disagreement": self.disagreement.value.item(),
        }


class Movement:
    """How far the histogram of predictions in blocks of images goes from its history, in units of what chance does.

    Chance makes this 1 on average, with a variance of (π/2 - 1) / (E - 1) for E equally likely classes.
    """

    state_attributes: ClassVar[tuple[str, ...]] = ("waiting", "votes", "history", "ratio", "variance")

    def __init__(self, memory: int, block: int) -> None:
        self.block, self.waiting, self.votes = block, 0, torch.zeros(())
        self.history, self.ratio, self.variance = Average(5 * memory), Average(memory), Average(memory)

    def beyond(self, limit: float) -> bool:
        """Whether it goes further than ``limit``, and than four standard errors above what chance does."""
        images = max(1, min(self.ratio.seen, self.ratio.memory))
        return self.ratio.value.item() > max(limit, 1 + 4 * math.sqrt(self.variance.value.item() / images))

    def observe(self, logits: Tensor) -> None:
        """Take in the predictions for a batch; a whole block is compared with the history and joins it."""
        self.votes = self.votes + logits.argmax(1).bincount(minlength=logits.shape[1]).cpu()
        self.waiting += len(logits)
        if self.waiting < self.block:
            return
        count, share = self.waiting, self.votes / self.waiting
        self.waiting, self.votes = 0, torch.zeros(())
        if self.history.seen:
            before = min(self.history.seen, self.history.memory)
            pooled = (count * share + before * self.history.value) / (count + before)
            spread = (pooled * (1 - pooled) * (1 / count + 1 / before) * 2 / math.pi).sqrt()  # E of |difference|
            total = spread.sum().clamp(min=1e-6)
            classes = total.square() / spread.square().sum().clamp(min=1e-12)
            self.ratio.add((share - self.history.value).abs().sum() / total, count)
            self.variance.add(count * (math.pi / 2 - 1) / (classes - 1).clamp(min=1), count)
        self.history.add(share, count)


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
    parts = [getattr(adapter, name) for name in adapter.state_attributes]
    return sum(dropped_by(part) if isinstance(part, Adapter) else getattr(part, "dropped", 0) for part in parts)


def _in_context(adapter: Adapter, x: Tensor) -> Tensor:
    """The adapted network's logits for ``x``, among the images that the adapter answers it with."""
    logits: Tensor = adapter.model(adapter.context(x)).logits[-len(x) :]
    return logits


def _steadiness(logits: Tensor, mirrored: Tensor) -> Tensor:
    return (logits.float().softmax(1) * mirrored.float().softmax(1)).sum(1).mean()
