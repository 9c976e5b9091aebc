"""RoTTA: robust statistics, a balanced memory of recent confident images, and a mean teacher.

Yuan et al., "Robust Test-Time Adaptation in Dynamic Scenarios", CVPR 2023.
"""

import copy
from functools import partial

import torch
from torch import Tensor

from ttc.clustering import (
    BalancedMemory,
    BatchAugmentation,
    Normalize,
    OptimizerFactory,
    Updater,
    plausible_rows,
    soft_cross_entropy,
    update_average_,
)
from ttc.core import Classifier, ExportParts, SmallBatches, require_finite, seeded_generator
from ttc.core.cautious import CautiousAdapter
from ttc.core.outlier_check import OutlierCheck
from ttc.errors import TTCError
from ttc.methods.method import Method
from ttc.nn import RobustNorm, copy_with_trainable_norms, track_statistics


class RoTTA(CautiousAdapter):
    """Predicts with the teacher, stores images in a memory and learns from the memory every ``period`` images.

    Ours: images with absurd logits are not stored (:func:`ttc.clustering.plausible_rows`), and a batch far from
    those before not until another like it comes (:class:`ttc.core.cautious.CautiousAdapter`).

    Args:
        model: The student, a prepared copy with :class:`ttc.nn.RobustNorm`.
        updater: Updates the student.
        memory: Which images to learn from.
        momentum: The weight of the old value in the teacher's moving average, 1 - ν.
        period: The number of images between two updates.
        augment: Makes the augmented copy of the memory that the student sees.
        seed: The seed of augmentations.
    """

    state_attributes = ("model", "teacher", "updater", "memory", "count", "updates", "check")

    def __init__(
        self,
        model: Classifier,
        updater: Updater,
        memory: BalancedMemory,
        *,
        momentum: float,
        period: int,
        augment: BatchAugmentation,
        seed: int,
    ) -> None:
        super().__init__(model)
        self.teacher = copy.deepcopy(model)
        self.updater, self.memory = updater, memory
        self.momentum, self.period = momentum, period
        self.augment, self.seed = augment, seed
        self.count = self.updates = 0  # images seen, updates made
        self.check = OutlierCheck()

    def learn(self, x: Tensor) -> Tensor:
        """Return the teacher's logits from before the updates that this batch leads to."""
        logits = self.infer(x)
        probability = logits.to(torch.promote_types(logits.dtype, torch.float32)).softmax(1)
        uncertainties = -(probability * (probability + 1e-6).log()).sum(1)
        plausible = plausible_rows(logits).tolist()
        for image, label, uncertainty, stored in zip(
            x, logits.argmax(1).tolist(), uncertainties.tolist(), plausible, strict=True
        ):
            if stored:
                self.memory.add(image, label, uncertainty)
            self.count += 1
            if self.count % self.period == 0 and len(self.memory):
                self._update()
        return logits

    @torch.no_grad()
    def infer(self, x: Tensor) -> Tensor:
        """Return the teacher's logits."""
        return require_finite(self.teacher(x).logits)

    def export_parts(self) -> ExportParts:
        """Return the teacher, which predicts."""
        return ExportParts(model=self.teacher)

    def use_small_batches_(self, settings: SmallBatches) -> None:
        """Change nothing: it counts images, not batches."""

    def _update(self) -> None:
        images, ages = self.memory.stacked()
        augmented = self.augment(images, seeded_generator(self.seed, self.updates))
        with track_statistics(self.teacher), torch.no_grad():
            labels = self.teacher(images).logits
        with track_statistics(self.model):
            logits = self.model(augmented).logits
        weights = (-ages).exp() / (1 + (-ages).exp())
        if self.updater((weights * soft_cross_entropy(labels, logits)).mean(), len(images)):
            update_average_(self.teacher, self.model, self.momentum)
        self.updates += 1


def rotta(
    model: Classifier,
    *,
    optimizer: OptimizerFactory | None = None,
    capacity: int = 64,
    period: int = 64,
    nu: float = 0.001,
    alpha: float = 0.05,
    age_weight: float = 1.0,
    uncertainty_weight: float = 1.0,
    normalize: Normalize | None = None,
    seed: int = 0,
) -> RoTTA:
    """RoTTA: learns scale and shift from a balanced memory, with robust statistics and a mean teacher.

    Yuan et al., "Robust Test-Time Adaptation in Dynamic Scenarios", CVPR 2023. The teacher predicts with its running
    statistics; each image is offered to a memory of 64 that balances predicted classes and prefers recent and confident
    images; after every 64 images the student learns from an augmented copy of the memory the teacher's labels of it,
    weighted by recency, both networks move their running statistics by α, and the teacher follows the student by ν.
    Batches of any size work, single images too. Networks without BatchNorm train the scale and shift that they have.

    With α = 0 and ν = 0 it predicts as SOURCE.

    Args:
        optimizer: Makes the optimizer; Adam with lr 1e-3 unless given.
        capacity: The number of images in the memory.
        period: The number of images between two updates.
        nu: ν, the weight of the student in the teacher's moving average, in [0, 1].
        alpha: α, the weight of the memory's statistics in the running ones, in [0, 1].
        age_weight: λ_t, the weight of an image's age in the choice of the one to replace.
        uncertainty_weight: λ_u, the weight of its uncertainty.
        normalize: ``(mean, std)`` of standardized images; images are in [0, 1] unless given.
        seed: The seed of augmentations.
    """
    for name, value in {"nu": nu, "alpha": alpha}.items():
        if not 0 <= value <= 1:
            raise TTCError(f"{name} is the weight of a new value and lies in [0, 1], got {value}")
    if period < 1:
        raise TTCError(f"period is a positive number of images, got {period}")
    prepared = copy_with_trainable_norms(model, partial(RobustNorm, momentum=alpha))
    return RoTTA(
        prepared,
        Updater(prepared.parameters(), optimizer or partial(torch.optim.Adam, lr=1e-3)),
        BalancedMemory(capacity, model.num_classes, age_weight=age_weight, uncertainty_weight=uncertainty_weight),
        momentum=1 - nu,
        period=period,
        augment=BatchAugmentation(normalize=normalize),
        seed=seed,
    )


METHOD = Method(
    name="rotta",
    build=rotta,
    changes=("norm affine", "norm statistics"),
    forwards=(1, 3),
    backwards=(0, 1),
    needs=("source statistics",),
    paper="Yuan 2023",
    memory="a copy of the model and 64 images",
)
