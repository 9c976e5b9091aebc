"""RMT: a robust mean teacher with contrastive learning towards source prototypes and replay of source images.

Döbler et al., "Robust Mean Teacher for Continual and Gradual Test-Time Adaptation", CVPR 2023.
"""

import copy
import itertools
import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ttc.clustering import (
    BatchAugmentation,
    Normalize,
    OptimizerFactory,
    Updater,
    contrastive_loss,
    symmetric_cross_entropy,
    update_average_,
)
from ttc.core import Classifier, require_finite, seeded_generator
from ttc.core.cautious import CautiousAdapter
from ttc.core.outlier_check import OutlierCheck
from ttc.core.statistics import freeze_statistics
from ttc.errors import TTCError
from ttc.methods.method import Method
from ttc.nn import copy_with_trainable_parameters, require_source_images

PROJECTED = 128  # width of the projector's hidden and output layer
SOURCE_IMAGES = 2000


class SourceData(nn.Module):
    """Source images to replay, their labels, and the mean feature per class: constants that move with an adapter."""

    def __init__(self, images: Tensor, labels: Tensor, prototypes: Tensor) -> None:
        super().__init__()
        self.images = nn.Parameter(images, requires_grad=False)  # parameters that are not trained are no state
        self.labels = nn.Parameter(labels, requires_grad=False)
        self.prototypes = nn.Parameter(prototypes, requires_grad=False)

    def nearest(self, features: Tensor) -> Tensor:
        """Return the prototype with the largest cosine to each feature: (N, D) -> (N, D)."""
        cosine = F.normalize(features) @ F.normalize(self.prototypes).T
        return self.prototypes[cosine.argmax(1)]


class RMT(CautiousAdapter):
    """Teaches a student with its moving average, contrasts features with prototypes, and replays source images.

    Ours: a batch far from those before is not learned from until another like it comes
    (:class:`ttc.core.cautious.CautiousAdapter`).

    Args:
        model: The student, a prepared copy.
        projector: Maps features to the space of the contrastive loss.
        source: What is stored of the source.
        updater: Updates student and projector.
        weights: The weights of the losses on source images, on test images, and between features.
        momentum: m of the teacher's moving average.
        temperature: τ of the contrastive loss.
        augment: Makes the augmented copy of a batch.
        seed: The seed of augmentations and replay.
    """

    state_attributes = ("model", "teacher", "projector", "source", "updater", "calls", "check")

    def __init__(
        self,
        model: Classifier,
        projector: nn.Module,
        source: SourceData,
        updater: Updater,
        *,
        weights: tuple[float, float, float],
        momentum: float,
        temperature: float,
        augment: BatchAugmentation,
        seed: int,
    ) -> None:
        super().__init__(model)
        self.teacher = copy.deepcopy(model)
        self.projector, self.source, self.updater = projector, source, updater
        self.source_weight, self.target_weight, self.contrast_weight = weights
        self.momentum, self.temperature = momentum, temperature
        self.augment, self.seed, self.calls = augment, seed, 0
        self.check = OutlierCheck()

    def learn(self, x: Tensor) -> Tensor:
        """Return the sum of the student's and the teacher's logits from before the update."""
        generator = seeded_generator(self.seed, self.calls)
        logits, features = self.model(x)
        labels = self._labels(x)
        require_finite(logits + labels)
        with freeze_statistics(self.model):  # a batch counts once in averages over the stream
            augmented = self.model(self.augment(x, generator))
            loss = self._target_loss(logits, augmented.logits, labels)
            if self.contrast_weight:
                loss = loss + self.contrast_weight * self._contrast(features, augmented.features)
            if self.source_weight:
                loss = loss + self.source_weight * self._replay(len(x), generator)
        self.step(loss, len(x))
        self.calls += 1
        return logits.detach() + labels

    @torch.no_grad()
    def infer(self, x: Tensor) -> Tensor:
        """Return the sum of the student's and the teacher's logits."""
        return require_finite(self.model(x).logits + self._labels(x))

    def step(self, loss: Tensor, batch_size: int) -> None:
        """Take a step on the student, which the teacher follows."""
        if self.updater(loss, batch_size):
            update_average_(self.teacher, self.model, self.momentum)

    @torch.no_grad()
    def _labels(self, x: Tensor) -> Tensor:
        return self.teacher(x).logits

    def _target_loss(self, logits: Tensor, augmented: Tensor, labels: Tensor) -> Tensor:
        both = symmetric_cross_entropy(labels, logits) + symmetric_cross_entropy(labels, augmented)
        return self.target_weight * both.mean() / 2

    def _contrast(self, features: Tensor, augmented: Tensor) -> Tensor:
        views = torch.stack([self.source.nearest(features.detach()), features, augmented], 1)  # (N, 3, D)
        return contrastive_loss(self.projector(views), self.temperature)

    def _replay(self, count: int, generator: torch.Generator) -> Tensor:
        rows = torch.randint(len(self.source.images), (count,), generator=generator).to(self.source.labels.device)
        return F.cross_entropy(self.model(self.source.images[rows]).logits, self.source.labels[rows])


def rmt(
    model: Classifier,
    *,
    source_images: Tensor | None = None,
    source_labels: Tensor | None = None,
    optimizer: OptimizerFactory | None = None,
    source_weight: float = 1.0,
    target_weight: float = 1.0,
    contrast_weight: float = 1.0,
    momentum: float = 0.999,
    temperature: float = 0.1,
    warm_up_samples: int = 50_000,
    warm_up_batch: int | None = None,
    normalize: Normalize | None = None,
    seed: int = 0,
) -> RMT:
    """RMT: a mean teacher with a symmetric loss, contrast towards source prototypes, and replay of source images.

    Döbler et al., "Robust Mean Teacher for Continual and Gradual Test-Time Adaptation", CVPR 2023. Before the first
    batch: the mean feature per class of the source images, and a warm-up in which the student learns from its teacher
    on source images while the learning rate rises linearly. Per batch: the symmetric cross-entropy of the student, on
    the batch and on an augmented copy, with the teacher's labels; a contrastive loss between each image's nearest
    prototype, its feature and that of its copy; the cross-entropy on a batch of source images. The output is the sum
    of the student's and the teacher's logits. ``reset()`` restores the state after the warm-up. An adapter that was
    saved is loaded with the same source images, and runs the warm-up again. What :func:`ttc.nn.source_classifier`
    returns, and a guard compares with, is the network after the warm-up.

    With all three weights 0 and no warm-up it predicts with twice the logits of NORM.
    Differs from the original: replayed images are drawn with replacement; without ``source_labels`` the source model's
    own predictions replace them; a class that occurs in no source image has no prototype; a batch far from those
    before is not learned from until another like it comes (:class:`ttc.core.cautious.CautiousAdapter`).

    Args:
        source_images: Clean images that the model was trained on; the original uses the whole training set.
        source_labels: Their labels (M,); the source model's predictions unless given.
        optimizer: Makes the optimizer; Adam with lr 1e-3 below 500 classes, else SGD with lr 0.01 and Nesterov
            momentum 0.9.
        source_weight: λ_src, the weight of the loss on source images; with 0 no images are stored.
        target_weight: λ_trg, the weight of the loss between student and teacher.
        contrast_weight: λ_cont, the weight of the contrastive loss.
        momentum: m, the weight of the old value in the teacher's moving average, in [0, 1].
        temperature: τ of the contrastive loss.
        warm_up_samples: The number of source images, counted with repetition, that the warm-up learns from.
        warm_up_batch: Source images per step of the warm-up; 200 below 500 classes, else 64.
        normalize: ``(mean, std)`` of standardized images; images are in [0, 1] unless given.
        seed: The seed of the projector, the warm-up, augmentations and replay.
    """
    if not 0 <= momentum <= 1:
        raise TTCError(f"momentum lies in [0, 1], got {momentum}")
    images = require_source_images(model, source_images, method="rmt", count=SOURCE_IMAGES)
    large = model.num_classes >= 500
    batch = warm_up_batch or (64 if large else 200)
    labels = _source_labels(model, images, source_labels, batch)
    student = copy_with_trainable_parameters(model)
    generator = seeded_generator(seed, 0)
    source = SourceData(images if source_weight else images[:0], labels, _prototypes(student, images, labels, batch))
    projector = _projector(model.head_weight, generator)
    sgd = partial(torch.optim.SGD, lr=0.01, momentum=0.9, nesterov=True)
    adapter = RMT(
        student,
        projector,
        source,
        Updater(
            itertools.chain(student.parameters(), projector.parameters()),
            optimizer or (sgd if large else partial(torch.optim.Adam, lr=1e-3)),
        ),
        weights=(source_weight, target_weight, contrast_weight),
        momentum=momentum,
        temperature=temperature,
        augment=BatchAugmentation(normalize=normalize),
        seed=seed,
    )
    _warm_up_(adapter, images, warm_up_samples, batch, generator)
    return adapter


def _warm_up_(adapter: RMT, images: Tensor, samples: int, batch: int, generator: torch.Generator) -> None:
    """Teach the student on source images, with a learning rate that rises linearly to its value."""
    steps, optimizer = samples // batch, adapter.updater.optimizer
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    epochs = math.ceil(steps * batch / len(images))
    order = torch.cat(
        [torch.empty(0).long(), *(torch.randperm(len(images), generator=generator) for _ in range(epochs))]
    )
    for step in range(steps):
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * (step + 1) / steps
        x = images[order[step * batch : (step + 1) * batch].to(images.device)]
        with torch.no_grad():
            labels = adapter.teacher(x).logits
        with torch.enable_grad():
            adapter.step(symmetric_cross_entropy(labels, adapter.model(x).logits).mean(), len(x))


@torch.no_grad()
def _source_labels(model: Classifier, images: Tensor, labels: Tensor | None, batch: int) -> Tensor:
    if labels is None:
        return torch.cat([require_finite(model(part).logits).argmax(1) for part in images.split(batch)])
    if labels.shape != images.shape[:1] or labels.is_floating_point():
        raise TTCError(
            f"expected one whole number per source image as source_labels, got {labels.dtype} {tuple(labels.shape)} "
            f"for {len(images)} images"
        )
    if not bool(((labels >= 0) & (labels < model.num_classes)).all()):
        raise TTCError(f"source_labels are class indices below {model.num_classes}, got {labels.unique().tolist()}")
    return labels.detach().clone().long().to(images.device)


@torch.no_grad()
def _prototypes(model: Classifier, images: Tensor, labels: Tensor, batch: int) -> Tensor:
    """Return the mean feature of each class that occurs: (classes, D)."""
    features = torch.cat([model(part).features for part in images.split(batch)])
    return torch.stack([features[labels == label].mean(0) for label in labels.unique()])


def _projector(like: Tensor, generator: torch.Generator) -> nn.Module:
    """Make the projector d → 128 → 128, initialized as torch does, from a generator of its own."""
    layers = [nn.utils.skip_init(nn.Linear, width, PROJECTED) for width in (like.shape[1], PROJECTED)]
    for parameter, width in [(p, layer.in_features) for layer in layers for p in layer.parameters()]:
        nn.init.uniform_(parameter, -1 / math.sqrt(width), 1 / math.sqrt(width), generator=generator)
    return nn.Sequential(layers[0], nn.ReLU(), layers[1]).to(like.device, like.dtype)


METHOD = Method(
    name="rmt",
    build=rmt,
    changes=("all parameters",),
    forwards=(3, 4),
    backwards=(2, 3),
    needs=("source images", "large batches"),
    paper="Döbler 2023",
    memory="a copy of the model, a projector, and the source images",
    source_images=SOURCE_IMAGES,
)
