"""The similarity-preserving constraint with a true neighbour, from a bounded memory of past batches."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ttc.clustering.assignment import Assignment
from ttc.clustering.losses import SimilarityPreserving
from ttc.core.classifier import Prediction
from ttc.core.part import Part, share_parts_
from ttc.core.processes import Processes
from ttc.errors import TTCError


@dataclass
class StoredNeighbour(Part):
    """Compares each sample with the nearest stored one of the same predicted class, then stores the batch.

    Features and logits of past samples are constant, as they were when stored: of the plain view, labelled by the fused
    prediction. A sample whose class has not been stored yet has no constraint, a loss of 0. The oldest samples leave
    the memory first.

    Args:
        constraint: The loss between a sample and its neighbour.
        size: The number of samples in the memory; each takes D + K numbers and a label.
    """

    state_attributes: ClassVar[tuple[str, ...]] = ("features", "logits", "labels")
    constraint: SimilarityPreserving
    size: int = 1024
    features: Tensor | None = field(init=False)
    logits: Tensor | None = field(init=False)
    labels: Tensor | None = field(init=False)

    def __post_init__(self) -> None:
        if self.size < 1:
            raise TTCError(f"memory_size is a positive number of samples, got {self.size}")
        self.features = self.logits = self.labels = None

    def __call__(self, assignment: Assignment) -> Tensor:
        plain, labels = assignment.views[0], assignment.logits.detach().argmax(1)
        losses = self._compare(plain, labels)
        self.features = _appended(self.features, plain.features, self.size)
        self.logits = _appended(self.logits, plain.logits, self.size)
        self.labels = _appended(self.labels, labels, self.size)
        return torch.zeros_like(assignment.entropy) if losses is None else losses

    def share_stream_(self, processes: Processes) -> None:
        """Share a stream: an assignment has the samples of the whole batch, so every process stores them all."""
        share_parts_(self, processes)

    def nearest(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Find the nearest stored sample of the same class.

        Args:
            features: (N, D).
            labels: The predicted class of each sample (N,).

        Returns:
            The index of each neighbour in the memory (N,), and whether there is one (N,).
        """
        assert self.features is not None
        assert self.labels is not None
        stored, own = self.features.float(), features.detach().float()
        if self.constraint.normalize_features:
            stored, own = F.normalize(stored), F.normalize(own)
        same = labels[:, None] == self.labels[None]
        return torch.cdist(own, stored).masked_fill(~same, float("inf")).argmin(1), same.any(1)

    def _compare(self, plain: Prediction, labels: Tensor) -> Tensor | None:
        if self.features is None or self.logits is None:
            return None
        index, found = self.nearest(plain.features, labels)
        losses = self.constraint.between(plain, Prediction(self.logits[index], self.features[index]))
        return torch.where(found, losses, 0.0)


def _appended(stored: Tensor | None, new: Tensor, size: int) -> Tensor:
    rows = new.detach()[-size:]
    return rows.clone() if stored is None else torch.cat([stored, rows])[-size:].clone()
