"""LAME: the outputs of a batch are adjusted so that similar features get similar labels; the model stays as it is.

Boudiaf et al., "Parameter-free Online Test-time Adaptation", CVPR 2022.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ttc.core import Adapter, Classifier, require_finite
from ttc.errors import TTCError
from ttc.methods.method import Method
from ttc.nn import frozen_copy

TOLERANCE = 1e-8  # relative change of the energy at which the iteration stops


class LAME(Adapter):
    """Predicts with the labels that minimize a Laplacian-regularized energy over the batch; nothing is learned."""

    def __init__(
        self, model: Classifier, *, affinity: str, neighbours: int, symmetric: bool, weight: float, iterations: int
    ) -> None:
        super().__init__(model)
        for name, value in {"neighbours": neighbours, "iterations": iterations}.items():
            if value < 1:
                raise TTCError(f"{name} is a positive number, got {value}")
        self.affinity, self.neighbours, self.symmetric = affinity, neighbours, symmetric
        self.weight, self.iterations = weight, iterations

    @torch.no_grad()
    def adapt(self, x: Tensor) -> Tensor:
        """Return the log of the adjusted probabilities (N, K)."""
        logits, features = self.model(x)
        wide = torch.promote_types(logits.dtype, torch.float32)
        log_probability = require_finite(logits).to(wide).log_softmax(1)
        if len(x) == 1:  # no other image to agree with
            return log_probability.to(logits.dtype)
        unit = F.normalize(features.to(wide))
        kernel = self.weight * affinity_matrix(unit, self.affinity, self.neighbours, symmetric=self.symmetric)
        return laplacian_labels(log_probability, kernel, self.iterations).to(logits.dtype)

    def infer(self, x: Tensor) -> Tensor:
        """Return the log of the adjusted probabilities: there is nothing to learn."""
        return self.adapt(x)

    @property
    def uses_batch(self) -> bool:
        """Whether the prediction of an image depends on the others: always, through their features."""
        return True


def affinity_matrix(unit: Tensor, kind: str, neighbours: int, *, symmetric: bool = False) -> Tensor:
    """Return how alike the samples of a batch are: unit features (N, D) -> (N, N).

    Args:
        unit: Features of unit length.
        kind: ``"rbf"``, ``"knn"`` or ``"linear"``.
        neighbours: k; for ``"rbf"`` the bandwidth is the mean distance to the k-th nearest, the sample itself counted.
        symmetric: Average the matrix with its transpose.

    Example:
        >>> affinity_matrix(torch.eye(2), "linear", 1).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    if kind == "linear":
        matrix = unit @ unit.T
    else:
        distance = (unit[:, None] - unit[None]).norm(dim=2)  # (N, N); exact zeros on the diagonal, unlike cdist
        matrix = _rbf(distance, neighbours) if kind == "rbf" else _nearest(distance, neighbours)
    return (matrix + matrix.T) / 2 if symmetric else matrix


def laplacian_labels(log_probability: Tensor, kernel: Tensor, iterations: int) -> Tensor:
    """Return the log of the labels Y that minimize Σ u·Y - (W Y)·Y + Y log Y, by fixed-point steps.

    .. math:: Y \\leftarrow \\text{softmax}(-u + W Y), \\quad u = -\\log(p + 10^{-10})

    Args:
        log_probability: log p of the model (N, K).
        kernel: W, the affinities (N, N).
        iterations: The largest number of steps.

    Returns:
        log Y (N, K).
    """
    unary = -(log_probability.exp() + 1e-10).log()
    log_labels, energy = (-unary).log_softmax(1), float("inf")
    for step in range(iterations):
        pairwise = kernel @ log_labels.exp()
        log_labels = (pairwise - unary).log_softmax(1)
        labels = log_labels.exp()
        new = float((unary * labels - pairwise * labels + labels * labels.clamp(min=1e-20).log()).sum())
        if step > 1 and abs(new - energy) <= TOLERANCE * abs(energy):
            break
        energy = new
    return log_labels


def _rbf(distance: Tensor, neighbours: int) -> Tensor:
    bandwidth = distance.kthvalue(min(neighbours, len(distance)), dim=1).values.mean()
    return torch.exp(-distance.square() / (2 * bandwidth.square()).clamp(min=1e-12))  # equal images have no distance


def _nearest(distance: Tensor, neighbours: int) -> Tensor:
    others = distance.masked_fill(torch.eye(len(distance), dtype=torch.bool, device=distance.device), float("inf"))
    index = others.topk(min(neighbours, len(distance) - 1), dim=1, largest=False).indices
    return torch.zeros_like(distance).scatter_(1, index, 1.0)


def lame(
    model: Classifier,
    *,
    affinity: Literal["rbf", "knn", "linear"] = "rbf",
    neighbours: int = 5,
    symmetric: bool = False,
    weight: float = 1.0,
    iterations: int = 100,
) -> LAME:
    """LAME: adjusts the labels of a batch so that similar features agree; the model is not changed.

    Boudiaf et al., "Parameter-free Online Test-time Adaptation", CVPR 2022. With u = -log(p + 1e-10) and affinities W
    between unit features, iterate Y ← softmax(-u + W Y) until the energy settles; Y are the predictions.

    Made for streams whose neighbouring images share labels; on shuffled streams it is expected to be worse than SOURCE.

    Differs from the public code: returns log Y, so that outputs are logits; a single image gets the source prediction
    instead of 0/0; equal images, whose distance is 0, get affinity 1 instead of 0/0.

    Args:
        affinity: W: ``"rbf"`` of feature distances, with the mean distance to the ``neighbours``-th nearest sample, the
            sample itself counted, as bandwidth; ``"knn"``: 1 for the nearest others; ``"linear"``: cosines.
        neighbours: k of ``"rbf"`` and ``"knn"``.
        symmetric: Average W with its transpose.
        weight: The weight of W; 0 predicts as SOURCE does.
        iterations: The largest number of iterations.
    """
    return LAME(
        frozen_copy(model),
        affinity=affinity,
        neighbours=neighbours,
        symmetric=symmetric,
        weight=weight,
        iterations=iterations,
    )


METHOD = Method(name="lame", build=lame, changes=("nothing",), needs=("correlated labels",), paper="Boudiaf 2022")
