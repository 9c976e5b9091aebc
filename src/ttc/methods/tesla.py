"""TeSLA: self-learning from a mean teacher, on images that a learned policy makes hard.

Tomar et al., "TeSLA: Test-Time Self-Learning With Automatic Adversarial Augmentation", CVPR 2023.
"""

import copy
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ttc.clustering import (
    AugmentationPolicy,
    Normalize,
    OptimizerFactory,
    Updater,
    random_flip,
    random_resized_crop,
    softmax_entropy,
    update_average_,
)
from ttc.clustering.adversarial_augmentation import PAIRS, random_signs
from ttc.core import Classifier, ExportParts, Part, require_finite, seeded_generator
from ttc.core.cautious import CautiousAdapter
from ttc.core.outlier_check import OutlierCheck
from ttc.errors import TTCError
from ttc.methods.method import Method
from ttc.nn import RunningNorm, copy_with_trainable_parameters, track_statistics
from ttc.nn.norm_inputs import NormInputs, mean_distance


class Labels(NamedTuple):
    """One view of a batch, its recorded norm inputs, and the teacher's mean probability over all views."""

    view: Tensor
    means: list[Tensor]
    probability: Tensor


class HardImages(Part):
    """The policy that makes hard images, and what updates it."""

    state_attributes = ("policy", "updater")

    def __init__(self, policy: AugmentationPolicy, optimizer: OptimizerFactory) -> None:
        self.policy = policy
        self.updater = Updater(policy.parameters(), optimizer)


class TeSLA(CautiousAdapter):
    """Teaches a student with its moving average on easy and on hard images; the teacher predicts.

    Ours: a batch far from those before is not learned from until another like it comes
    (:class:`ttc.core.cautious.CautiousAdapter`).

    Args:
        model: The student, a prepared copy with :class:`ttc.nn.RunningNorm`.
        updater: Updates the student.
        hard: Makes hard images.
        momentum: m of the teacher's moving average.
        easy_views: The number of easy views that the teacher's labels are averaged over, beside the images themselves.
        hard_weight: The weight of the loss on hard images.
        seed: The seed of views and augmentations.
    """

    state_attributes = ("model", "teacher", "updater", "hard", "calls", "check")

    def __init__(
        self,
        model: Classifier,
        updater: Updater,
        hard: HardImages,
        *,
        momentum: float,
        easy_views: int,
        hard_weight: float,
        seed: int,
    ) -> None:
        super().__init__(model)
        self.teacher = copy.deepcopy(model)
        self.norm_inputs = NormInputs(self.teacher)
        self.updater, self.hard = updater, hard
        self.momentum, self.easy_views, self.hard_weight = momentum, easy_views, hard_weight
        self.seed, self.calls = seed, 0
        self.check = OutlierCheck()

    def learn(self, x: Tensor) -> Tensor:
        """Return the teacher's logits after the update."""
        generator = seeded_generator(self.seed, self.calls)
        labels = self._labels(x, generator)
        self.hard.updater(self._policy_loss(labels, generator), len(x))
        with torch.no_grad():
            hard_images = self.hard.policy(labels.view, *self.hard.policy.sample(len(x), generator))
        with track_statistics(self.model):
            easy, hard = (self.model(images).logits for images in (labels.view, hard_images))
        loss = _flipped_loss(easy, labels.probability) + self.hard_weight * _divergence(labels.probability, hard)
        if self.updater(loss, len(x)):
            update_average_(self.teacher, self.model, self.momentum)
        self.calls += 1
        return self.infer(x)

    @torch.no_grad()
    def infer(self, x: Tensor) -> Tensor:
        """Return the teacher's logits with its running statistics."""
        return require_finite(self.teacher(x).logits)

    def export_parts(self) -> ExportParts:
        """Return the teacher, which predicts."""
        return ExportParts(model=self.teacher)

    @torch.no_grad()
    def _labels(self, x: Tensor, generator: torch.Generator) -> Labels:
        views = [x, *(easy_view(x, generator) for _ in range(self.easy_views))]
        chosen = int(torch.randint(len(views), (), generator=generator))
        total, means = torch.zeros(()), list[Tensor]()
        with track_statistics(self.teacher):
            for index, view in enumerate(views):
                if index == chosen:
                    self.norm_inputs.start()
                logits = self.teacher(view).logits
                means = self.norm_inputs.stop() or means
                total = total.to(x.device) + require_finite(logits).softmax(1)
        return Labels(views[chosen], means, total / len(views))

    def _policy_loss(self, labels: Labels, generator: torch.Generator) -> Tensor:
        """Small for hard images: uncertain ones whose features stay close to those of the original."""
        count = len(labels.view)
        pairs = torch.randint(len(PAIRS), (count,), generator=generator).to(labels.view.device)
        signs = random_signs(count, generator).to(labels.view.device)
        images = self.hard.policy(labels.view, pairs, signs)
        self.norm_inputs.start()
        with track_statistics(self.teacher):
            logits = self.teacher(images).logits
        distance = mean_distance(labels.means, self.norm_inputs.stop(), count)
        easiness = distance - softmax_entropy(logits)
        return (easiness + easiness.detach() * self.hard.policy.logits.log_softmax(0)[pairs]).mean()


def easy_view(x: Tensor, generator: torch.Generator) -> Tensor:
    """Return a random crop of at least 80 % of each image at full size, mirrored half of the time."""
    return random_flip(random_resized_crop(x, generator, scale=(0.8, 1.0)), generator)


def tesla(
    model: Classifier,
    *,
    optimizer: OptimizerFactory | None = None,
    momentum: float | None = None,
    easy_views: int = 4,
    hard_weight: float = 1.0,
    policy_lr: float = 0.1,
    statistics_momentum: float = 0.1,
    normalize: Normalize | None = None,
    seed: int = 0,
) -> TeSLA:
    """TeSLA: a student learns all but the head from its moving average, also on images made hard by a learned policy.

    Tomar et al., "TeSLA: Test-Time Self-Learning With Automatic Adversarial Augmentation", CVPR 2023. Per batch: the
    teacher's probability is averaged over the images and four easy views of them; one of these views is augmented with
    random pairs of 14 operations, and the policy learns which pairs and magnitudes make the teacher uncertain while its
    features stay close; the student learns the labels on that view with the cross-entropy reversed and its mean
    prediction kept diverse, and on a copy made hard by the policy with the divergence from the labels; the teacher
    follows, and predicts. Both networks normalize with the batch and track it; the output uses the running statistics.

    With m = 1 and ``statistics_momentum`` = 0 it predicts as SOURCE.
    Differs from public versions: the labels come before the step of the policy, so that a rejected batch changes
    nothing, and the pass on the chosen view is not repeated, which leaves other running statistics; the magnitude of
    rotations is learned, where a range with two equal ends fixed it at 30 degrees; the logarithm of labels is bounded.
    Magnitudes start from N(0, 1), easy views are cut out of the images themselves, and there is no queue of neighbours
    (it is off online): written from a description of the method, not from its code.

    Args:
        optimizer: Makes the optimizer; Adam with lr 1e-3 below 500 classes, else SGD with lr 1e-3 and momentum 0.9.
        momentum: m, the weight of the old value in the teacher's moving average, in [0, 1]; 0.99, on ImageNet 0.9.
        easy_views: The number of easy views.
        hard_weight: The weight of the loss on hard images.
        policy_lr: The learning rate of the policy, with Adam.
        statistics_momentum: The weight of a new batch in the running statistics, in [0, 1].
        normalize: ``(mean, std)`` of standardized images; images are in [0, 1] unless given.
        seed: The seed of the policy, views and augmentations.
    """
    large = model.num_classes >= 500
    momentum = (0.9 if large else 0.99) if momentum is None else momentum
    for name, value in {"momentum": momentum, "statistics_momentum": statistics_momentum}.items():
        if not 0 <= value <= 1:
            raise TTCError(f"{name} lies in [0, 1], got {value}")
    if easy_views < 0:
        raise TTCError(f"easy_views is a number of views, got {easy_views}")
    prepared = copy_with_trainable_parameters(model, partial(RunningNorm, momentum=statistics_momentum), head=False)
    sgd = partial(torch.optim.SGD, lr=1e-3, momentum=0.9)
    policy = AugmentationPolicy(seeded_generator(seed, 0), normalize).to(model.head_weight.device)
    return TeSLA(
        prepared,
        Updater(prepared.parameters(), optimizer or (sgd if large else partial(torch.optim.Adam, lr=1e-3))),
        HardImages(policy, partial(torch.optim.Adam, lr=policy_lr)),
        momentum=momentum,
        easy_views=easy_views,
        hard_weight=hard_weight,
        seed=seed,
    )


def _flipped_loss(logits: Tensor, probability: Tensor) -> Tensor:
    """The cross-entropy of the labels under the prediction, minus the entropy of the mean prediction."""
    predicted = logits.softmax(1)
    mean = predicted.mean(0)
    return -(predicted * probability.clamp(min=1e-8).log()).sum(1).mean() + (mean * (mean + 1e-8).log()).sum()


def _divergence(probability: Tensor, logits: Tensor) -> Tensor:
    """KL(labels ‖ prediction), the mean over the batch."""
    return (probability * (probability.clamp(min=1e-8).log() - logits.log_softmax(1))).sum(1).mean()


METHOD = Method(
    name="tesla",
    build=tesla,
    changes=("backbone", "norm statistics"),
    forwards=9,
    backwards=3,
    needs=("source statistics",),
    paper="Tomar 2023",
    predicts="after",
    memory="a copy of the model, running statistics and a policy of 273 numbers",
)
