"""CoTTA: a mean teacher that averages over augmentations, and weights that are restored at random.

Wang et al., "Continual Test-Time Domain Adaptation", CVPR 2022.
"""

import copy
from functools import partial

import torch
from torch import Tensor

from ttc.clustering import (
    BatchAugmentation,
    Normalize,
    OptimizerFactory,
    Updater,
    mean_of_views,
    restore_randomly_,
    soft_cross_entropy,
    symmetric_cross_entropy,
    update_average_,
)
from ttc.core import Adapter, Classifier, require_finite, seeded_generator
from ttc.core.statistics import freeze_statistics
from ttc.errors import TTCError
from ttc.methods.method import Method
from ttc.nn import copy_with_trainable_parameters


class CoTTA(Adapter):
    """Teaches a student with the labels of its moving average, and predicts with those labels.

    Args:
        model: The student, a prepared copy.
        updater: Updates the student.
        momentum: m of the teacher's moving average.
        restore: The probability with which a weight of the student is set back to its source value.
        threshold: Below this mean confidence of the source model the teacher averages over augmentations.
        augmentations: How many of them.
        augment: Makes an augmented copy of a batch.
        symmetric: Whether the loss is the cross-entropy in both directions.
        seed: The seed of augmentations and restoration.
    """

    state_attributes = ("model", "teacher", "anchor", "updater", "calls")

    def __init__(
        self,
        model: Classifier,
        updater: Updater,
        *,
        momentum: float,
        restore: float,
        threshold: float,
        augmentations: int,
        augment: BatchAugmentation,
        symmetric: bool,
        seed: int,
    ) -> None:
        super().__init__(model)
        self.teacher = copy.deepcopy(model)
        self.anchor = copy.deepcopy(model).requires_grad_(False)
        self.updater, self.momentum, self.restore = updater, momentum, restore
        self.threshold, self.augmentations, self.augment = threshold, augmentations, augment
        self.symmetric, self.seed, self.calls = symmetric, seed, 0

    def adapt(self, x: Tensor) -> Tensor:
        """Return the teacher's logits from before the update."""
        logits = require_finite(self.model(x).logits)
        generator = self._draws()
        labels = self._labels(x, generator)
        losses = (symmetric_cross_entropy if self.symmetric else soft_cross_entropy)(labels, logits)
        if self.updater(losses.mean(), len(x)):
            update_average_(self.teacher, self.model, self.momentum)
            restore_randomly_(self.model, self.anchor, self.restore, generator)
        self.calls += 1
        return labels

    def infer(self, x: Tensor) -> Tensor:
        """Return the teacher's logits."""
        return self._labels(x, self._draws())

    @torch.no_grad()
    def _labels(self, x: Tensor, generator: torch.Generator) -> Tensor:
        confidence = require_finite(self.anchor(x).logits).softmax(1).amax(1).mean()
        if confidence >= self.threshold:
            return require_finite(self.teacher(x).logits)
        views = [self.teacher(self.augment(x, generator)).logits]
        with freeze_statistics(self.teacher):  # a batch counts once in averages over the stream
            views += [self.teacher(self.augment(x, generator)).logits for _ in range(self.augmentations - 1)]
        return require_finite(mean_of_views(views))

    def _draws(self) -> torch.Generator:
        return seeded_generator(self.seed, self.calls)


def cotta(
    model: Classifier,
    *,
    optimizer: OptimizerFactory | None = None,
    momentum: float = 0.999,
    restore: float | None = None,
    threshold: float | None = None,
    augmentations: int = 32,
    normalize: Normalize | None = None,
    seed: int = 0,
) -> CoTTA:
    """CoTTA: a student learns all parameters from its moving average, and forgets at random.

    Wang et al., "Continual Test-Time Domain Adaptation", CVPR 2022. Per batch: the source model's mean confidence a
    decides whether the teacher labels the batch itself (a ≥ τ) or averages its logits over 32 augmented copies; the
    student takes a step on the cross-entropy with these labels (half of it reversed on ImageNet); the teacher follows
    the student; every weight of the student returns to its source value with probability r. Options left out follow
    the original's settings for the number of classes: CIFAR-10 up to 50 classes, CIFAR-100 below 500, else ImageNet.

    With m = 1 and τ = 0 it predicts as NORM.
    Differs from public versions: augmented copies are computed only where they are used; every parameter is trained,
    not only those called weight and bias; images of batches whose gradient is not finite change nothing.

    Args:
        optimizer: Makes the optimizer; Adam with lr 1e-3 below 500 classes, else SGD with lr 0.01 and Nesterov
            momentum 0.9.
        momentum: m, the weight of the old value in the teacher's moving average, in [0, 1].
        restore: r, the probability that a weight is restored, in [0, 1]; 0.01, on ImageNet 0.001.
        threshold: τ, a mean confidence in [0, 1]; 0.92, 0.72 or 0.1 by number of classes.
        augmentations: The number of augmented copies that the teacher averages over.
        normalize: ``(mean, std)`` of standardized images; images are in [0, 1] unless given.
        seed: The seed of augmentations and restoration.
    """
    small, large = model.num_classes <= 50, model.num_classes >= 500
    restore = (0.001 if large else 0.01) if restore is None else restore
    threshold = (0.92 if small else 0.1 if large else 0.72) if threshold is None else threshold
    for name, value in {"momentum": momentum, "restore": restore, "threshold": threshold}.items():
        if not 0 <= value <= 1:
            raise TTCError(f"{name} lies in [0, 1], got {value}")
    if augmentations < 1:
        raise TTCError(f"augmentations is a positive number of copies, got {augmentations}")
    sgd = partial(torch.optim.SGD, lr=0.01, momentum=0.9, nesterov=True)
    prepared = copy_with_trainable_parameters(model)
    return CoTTA(
        prepared,
        Updater(prepared.parameters(), optimizer or (sgd if large else partial(torch.optim.Adam, lr=1e-3))),
        momentum=momentum,
        restore=restore,
        threshold=threshold,
        augmentations=augmentations,
        augment=BatchAugmentation(normalize=normalize),
        symmetric=large,
        seed=seed,
    )


METHOD = Method(
    name="cotta",
    build=cotta,
    changes=("all parameters",),
    forwards=(3, 34),
    backwards=1,
    needs=("large batches",),
    paper="Wang 2022",
    memory="two copies of the model",
)
