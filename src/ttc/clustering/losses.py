"""Losses of the U-step, one value per sample: the caller selects and averages."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ttc.clustering.assignment import Assignment
from ttc.core.classifier import Prediction
from ttc.core.entropy import softmax_entropy
from ttc.errors import TTCError

Loss = Callable[[Assignment], Tensor]


def entropy(assignment: Assignment) -> Tensor:
    """Return the entropy H of each assigned label: (N,)."""
    return assignment.entropy


@dataclass(frozen=True)
class Diversity:
    """Minus the entropy of the mean probability of the batch, the same value for every sample: (N,).

    .. math:: \\sum_k \\bar p_k \\log(\\bar p_k + 10^{-5})

    It is smallest when all classes are predicted equally often.

    Args:
        weight: What the value is multiplied by.
    """

    weight: float = 1.0

    def __call__(self, assignment: Assignment) -> Tensor:
        logits = assignment.logits
        mean = logits.softmax(1, dtype=torch.promote_types(logits.dtype, torch.float32)).mean(0)
        return (self.weight * (mean * (mean + 1e-5).log()).sum()).expand(len(logits))


def conservative_entropy(assignment: Assignment) -> Tensor:
    """Return the entropy of the beliefs and the uncertainty of each assigned label: (N,) (COME).

    .. math:: b_k = e^{f_k} / S, \\quad u = K / S, \\quad S = \\sum_k e^{f_k} + K

    That is the entropy of K + 1 classes whose last logit is ln K. The norm of the logits is constant in the backward
    pass, so that the loss cannot fall by making every prediction more confident.

    Args:
        assignment: Its fused logits are the evidence.
    """
    logits = assignment.logits.to(assignment.entropy)
    norm = logits.norm(dim=1, keepdim=True).clamp_min(torch.finfo(logits.dtype).tiny)
    logits = logits / norm * norm.detach()
    uncertainty = torch.full_like(logits[:, :1], math.log(logits.shape[1]))
    return softmax_entropy(torch.cat([logits, uncertainty], 1))


def similarity(features: Tensor, neighbour: Tensor, bandwidth: float = 1.0) -> Tensor:
    """Compute the similarity of feature vectors, row by row.

    .. math:: \\kappa(x, x') = \\exp(-\\|g(x) - g(x')\\|^2 / 2\\sigma^2)

    Args:
        features: (N, D).
        neighbour: (N, D).
        bandwidth: σ.

    Returns:
        Similarities (N,) in (0, 1].

    Example:
        >>> similarity(torch.zeros(1, 2), torch.ones(1, 2)).log().tolist()
        [-1.0]
    """
    return torch.exp(-(features - neighbour).square().sum(1) / (2 * bandwidth**2))


@dataclass(frozen=True)
class SimilarityPreserving:
    """The similarity-preserving constraint (SPC) between a sample and its neighbour, the second view.

    .. math:: L_{con}(x) = \\kappa(x, x') \\|f(x) - f(x')\\|^2

    Paper: TTC, Sec. "Similarity-Preserving Constraint". κ is constant in the backward pass: otherwise the loss as a
    function of the feature distance would fall again beyond σ√2 and push the pair apart.

    Args:
        bandwidth: σ of the similarity κ.
        weight: λ, a factor on the loss.
        on: Compare ``"logits"`` or ``"probabilities"``.
        reduction: ``"sum"`` or ``"mean"`` of the squared differences over classes.
        detach_similarity: Whether κ is constant in the backward pass.
        normalize_features: Whether features have unit length in κ.
        detach_neighbour: Whether the second view is constant in the backward pass.
    """

    bandwidth: float = 1.0
    weight: float = 1.0
    on: str = "logits"
    reduction: str = "sum"
    detach_similarity: bool = True
    normalize_features: bool = False
    detach_neighbour: bool = False

    def __post_init__(self) -> None:
        if self.on not in {"logits", "probabilities"}:
            raise TTCError(f"spc_on is 'logits' or 'probabilities', got '{self.on}'")
        if self.reduction not in {"sum", "mean"}:
            raise TTCError(f"spc_reduction is 'sum' or 'mean', got '{self.reduction}'")
        if self.bandwidth <= 0:
            raise TTCError(f"bandwidth is positive, got {self.bandwidth}")

    def __call__(self, assignment: Assignment) -> Tensor:
        if len(assignment.views) < 2:
            raise TTCError("the similarity-preserving constraint compares two views, the assignment has one")
        return self.between(*assignment.views[:2])

    def between(self, prediction: Prediction, neighbour: Prediction) -> Tensor:
        """Return the loss of each sample (N,) against its neighbour, row by row."""
        (logits, features), (other_logits, other_features) = prediction, neighbour
        if self.detach_neighbour:
            other_logits, other_features = other_logits.detach(), other_features.detach()
        if self.normalize_features:
            features, other_features = (
                torch.nn.functional.normalize(features),
                torch.nn.functional.normalize(other_features),
            )
        kappa = similarity(features, other_features, self.bandwidth)
        if self.detach_similarity:
            kappa = kappa.detach()
        if self.on == "probabilities":
            logits, other_logits = logits.softmax(1), other_logits.softmax(1)
        squares = (logits - other_logits).square()
        return self.weight * kappa * (squares.sum(1) if self.reduction == "sum" else squares.mean(1))
