"""The class prior of a stream, estimated from predictions near in time and trusted as far as it predicts."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ttc.core.part import Part
from ttc.errors import TTCError

MEMORIES = (2.0, 8.0, 32.0, 128.0)  # images
STRENGTHS = (0.1, 0.5, 2.0, 8.0)  # pseudo-counts of the uniform prior
LONG_RUN = 1000.0  # images over which the frequencies of classes are no matter of neighbours
CAUTION = 5.0  # pseudo-counts per class of the long run when it corrects: it may be the model's bias
ORDERED_CLASSES = 5.0  # divided by the classes: the weight at first of the hypotheses that neighbours share one
CHUNK = 256  # images that are considered at once: the affinities in time take hypotheses · 256² numbers


class _Counts(NamedTuple):
    """What the hypotheses remember: decayed class counts of corrected and of plain predictions, and their weights."""

    corrected: Tensor
    plain: Tensor
    log_weights: Tensor


class ClassPrior(Part):
    """Estimates the class prior of every image from the predictions before it and, in its batch, after it.

    A hypothesis (memory m, pseudo-count κ) says that the class of image i is drawn from

    .. math:: \\pi_i(k) = \\frac{\\kappa / K + \\sum_{j \\ne i} \\lambda^{|i-j|} q_j(k)}{\\kappa + \\sum_{j \\ne i}
        \\lambda^{|i-j|}}, \\quad \\lambda = 1 - 1/m, \\quad q_j \\propto p_j \\, \\pi_j

    with p the softmax of the logits over ``temperature``, solved by ``iterations`` fixed-point steps; images of earlier
    batches keep the q they had. Others say that neighbours tell nothing: the prior is uniform, or it is how often
    classes occur in the long run, the equation with m = 1,000 and several κ. Each is weighted by how well it predicted
    so far, Σ log K Σ_k p_i(k) π_i(k) with priors from plain predictions, forgotten over ``forget`` images; neighbours
    have the weight 5 / K at first, half at most: the more classes there are, the less likely it is that two images
    share one, the more it says if they do, and the longer a bias of the model passes for an order. In a shuffled stream
    of equally frequent classes the uniform prior wins and nothing is corrected; where neighbouring images share
    classes, predictions are corrected by that. What the long run explains may be the stream or a bias of the model, so
    it corrects with κ = 5 K only, and it is no sign of an ordered stream.

    It is LAME with affinities in time in place of feature space, and with evidence in place of a choice by the user.

    Args:
        num_classes: K.
        temperature: What logits are divided by before they count as evidence: networks are too confident.
        memories: The m of the hypotheses, in images, above 1.
        strengths: The κ of the hypotheses, positive.
        forget: The number of images over which the weights of hypotheses are forgotten.
        iterations: The fixed-point steps.

    Example:
        >>> prior = ClassPrior(2)
        >>> ordered = torch.tensor([[2.0, 0.0], [0.0, 2.0]]).repeat_interleave(20, 0)
        >>> bool(prior(ordered)[-1, 1] > 0.8)
        True
        >>> bool(prior.correlation > 0.9)
        True
    """

    state_attributes: ClassVar[tuple[str, ...]] = ("corrected", "plain", "log_weights")

    def __init__(
        self,
        num_classes: int,
        *,
        temperature: float = 1.5,
        memories: Sequence[float] = MEMORIES,
        strengths: Sequence[float] = STRENGTHS,
        forget: float = 300.0,
        iterations: int = 3,
    ) -> None:
        if temperature <= 0 or min(strengths) <= 0 or min(memories) <= 1 or forget <= 1 or iterations < 1:
            raise TTCError("a class prior needs positive temperature, strengths and iterations, and memories above one")
        self.num_classes, self.temperature = num_classes, temperature
        self.forget, self.iterations = forget, iterations
        pairs = [(1 - 1 / memory, strength) for memory in memories for strength in strengths]
        long_run = (*strengths, num_classes, CAUTION * num_classes)
        pairs += [(1 - 1 / LONG_RUN, strength) for strength in long_run]
        self.near = len(pairs) - len(long_run)
        self.decays, self.strengths = (tuple(values) for values in zip(*pairs, strict=True))
        self.corrected = torch.zeros(len(pairs), num_classes)  # (H, K)
        self.plain = torch.zeros(len(pairs), num_classes)
        self.log_weights = self._initial_weights()

    def __call__(self, logits: Tensor, *, update: bool = True) -> Tensor:
        """Return the prior of each image, (N, K), in float32 at least.

        Args:
            logits: Logits (N, K), in the order of the stream.
            update: Whether to remember the batch.
        """
        wide = torch.promote_types(logits.dtype, torch.float32)
        probability = (logits.detach().to(wide) / self.temperature).softmax(1)
        counts = _Counts(*(one.to(probability) for one in (self.corrected, self.plain, self.log_weights)))
        priors = []
        for chunk in probability.split(CHUNK):
            prior, counts = self._advance(chunk, counts)
            priors.append(prior)
        if update:
            self.corrected, self.plain, self.log_weights = counts
        return torch.cat(priors)

    @property
    def correlation(self) -> float:
        """The weight of the evidence that neighbouring images share classes, in [0, 1]."""
        return float(self.log_weights[1 : 1 + self.near].exp().sum())

    def check_state(self, state: dict[str, Any]) -> None:
        """Check that counts are not negative and that weights are probabilities."""
        if any(bool((state[name] < 0).any()) for name in ("corrected", "plain")):
            raise ValueError("class counts are not negative")
        if not math.isclose(float(state["log_weights"].double().exp().sum()), 1, abs_tol=1e-3):
            raise ValueError("the weights of the hypotheses on the class prior do not add up to one")

    def _initial_weights(self) -> Tensor:
        """Return the log weights of the uniform prior, of those by neighbours and of the long run."""
        near, far = self.near, len(self.decays) - self.near
        ordered = min(0.5, ORDERED_CLASSES / self.num_classes)
        rest = (1 - ordered) / 2
        return torch.tensor([rest, *[ordered / near] * near, *[rest / far] * far]).log()

    def _advance(self, probability: Tensor, counts: _Counts) -> tuple[Tensor, _Counts]:
        size, classes = probability.shape
        decay = torch.tensor(self.decays).to(probability)[:, None]  # (H, 1)
        strength = torch.tensor(self.strengths).to(probability)[:, None, None]
        place = torch.arange(size, device=probability.device)
        apart = (place[:, None] - place[None]).abs()
        near = (decay[:, :, None] ** apart).masked_fill(apart == 0, 0.0)  # (H, N, N)
        past = (decay ** (place + 1))[:, :, None]  # (H, N, 1): how much each image remembers of earlier batches

        def prior_of(labels: Tensor, earlier: Tensor) -> Tensor:
            found = near @ labels + past * earlier[:, None]  # (H, N, K)
            return (strength / classes + found) / (strength + found.sum(2, keepdim=True))

        labels = probability.expand(len(decay), size, classes)
        prior = prior_of(labels, counts.plain)
        evidence = ((probability * prior).sum(2) * classes).log().sum(1)  # (H,)
        for _ in range(self.iterations):
            labels = probability * prior
            labels = labels / labels.sum(2, keepdim=True)
            prior = prior_of(labels, counts.corrected)
        start = self._initial_weights().to(probability)
        log_weights = start + (counts.log_weights - start) * (1 - 1 / self.forget) ** size
        log_weights = (log_weights + torch.cat([evidence.new_zeros(1), evidence])).log_softmax(0)
        weights = log_weights.exp()
        trusted = torch.cat([weights[1 : 1 + self.near], weights[1 + self.near :].sum(0, keepdim=True)])
        corrections = torch.cat([prior[: self.near], prior[-1:]])
        mixed = weights[0] / classes + torch.einsum("h,hnk->nk", trusted, corrections)
        left = decay ** (size - 1 - place)  # (H, N): how much of each image is remembered after the batch
        kept = decay**size
        corrected = kept * counts.corrected + torch.einsum("hn,hnk->hk", left, labels)
        plain = kept * counts.plain + left @ probability
        return mixed, _Counts(corrected, plain, log_weights)


def correct_logits(logits: Tensor, prior: Tensor) -> Tensor:
    """Multiply probabilities by a class prior, as logits: with the uniform prior they stay as they are.

    Args:
        logits: (N, K), of a model whose own prior is uniform.
        prior: (N, K) or (K,), positive.

    Example:
        >>> correct_logits(torch.zeros(1, 2), torch.tensor([[0.75, 0.25]])).softmax(1).round(decimals=2).tolist()
        [[0.75, 0.25]]
    """
    return logits + (prior * prior.shape[-1]).log().to(logits)
