"""A small memory of test images, balanced over predicted classes, that prefers recent and confident ones (RoTTA)."""

import math

import torch
from torch import Tensor

from ttc.core.part import Part
from ttc.errors import TTCError


class BalancedMemory(Part):
    """Stores up to C images with their predicted class, uncertainty u and age a.

    A class below its quota C / K may take a place of the largest classes when the memory is full; one at its quota
    replaces an image of its own. An image is replaced if its score is worse, that is larger, than the newcomer's:

    .. math:: \\lambda_t / (1 + e^{-a/C}) + \\lambda_u\\, u / \\ln K

    Images of another shape than those stored start a new memory.

    Args:
        capacity: C, the number of images.
        num_classes: K.
        age_weight: λ_t.
        uncertainty_weight: λ_u.
    """

    state_attributes = resizable_attributes = ("images", "labels", "uncertainties", "ages")

    def __init__(
        self, capacity: int, num_classes: int, *, age_weight: float = 1.0, uncertainty_weight: float = 1.0
    ) -> None:
        if capacity < 1:
            raise TTCError(f"capacity is a positive number of images, got {capacity}")
        self.capacity, self.num_classes = capacity, num_classes
        self.age_weight, self.uncertainty_weight = age_weight, uncertainty_weight
        self.images: list[Tensor] = []
        self.labels: list[int] = []
        self.uncertainties: list[float] = []
        self.ages: list[int] = []

    def __len__(self) -> int:
        return len(self.images)

    def add(self, image: Tensor, label: int, uncertainty: float) -> bool:
        """Offer an image (C, H, W) to the memory, whose images all grow older by one.

        Args:
            image: The image; a copy is stored.
            label: Its predicted class.
            uncertainty: The entropy of its prediction, in nats.

        Returns:
            Whether it was stored.
        """
        if self.images and self.images[0].shape != image.shape:
            self.images, self.labels, self.uncertainties, self.ages = [], [], [], []
        accepted = self._make_room(label, uncertainty)
        if accepted:
            self.images.append(image.detach().clone())
            self.labels.append(label)
            self.uncertainties.append(uncertainty)
            self.ages.append(0)
        self.ages = [age + 1 for age in self.ages]
        return accepted

    def stacked(self) -> tuple[Tensor, Tensor]:
        """Return the images (M, C, H, W) and their relative ages a / C (M,), class by class, old ones first."""
        order = sorted(range(len(self)), key=lambda index: self.labels[index])
        images = torch.stack([self.images[index] for index in order])
        ages = torch.tensor([self.ages[index] / self.capacity for index in order])
        return images, ages.to(images)

    def score(self, age: int, uncertainty: float) -> float:
        """Return how dispensable an image is: larger is worse."""
        by_age = self.age_weight / (1 + math.exp(-age / self.capacity))
        return by_age + self.uncertainty_weight * uncertainty / math.log(self.num_classes)

    def _make_room(self, label: int, uncertainty: float) -> bool:
        """Remove the worst of the images that may be replaced, if need be; tell whether there is room now."""
        counts = [self.labels.count(other) for other in range(self.num_classes)]
        below_quota = counts[label] < self.capacity / self.num_classes
        if below_quota and len(self) < self.capacity:
            return True
        classes = {k for k, count in enumerate(counts) if count == max(counts)} if below_quota else {label}
        worst, worst_score = -1, -math.inf
        for index in sorted(range(len(self)), key=lambda index: self.labels[index]):
            score = self.score(self.ages[index], self.uncertainties[index])
            if self.labels[index] in classes and score >= worst_score:  # of equals, the last
                worst, worst_score = index, score
        if worst_score <= self.score(0, uncertainty):
            return False
        for stored in (self.images, self.labels, self.uncertainties, self.ages):
            del stored[worst]
        return True
