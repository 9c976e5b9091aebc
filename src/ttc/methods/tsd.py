"""TSD: the head's predictions teach prototypes, and neighbours in a feature memory get alike predictions.

Wang et al., "Feature Alignment and Uniformity for Test Time Adaptation", CVPR 2023.
"""

from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ttc.clustering import OptimizerFactory, Supports, Updater, initial_supports, prototype_cosines, supports_per_class
from ttc.clustering.support_memory import SupportMemory
from ttc.core import Adapter, Classifier, require_finite
from ttc.errors import TTCError
from ttc.methods.method import Method
from ttc.nn import copy_with_trainable_norms, copy_with_trainable_parameters


class TSD(Adapter):
    """Distills the head into prototypes of a feature memory, and aligns predictions with those of near features.

    Ours: the features of an outlier are dropped (:class:`ttc.clustering.support_memory.SupportMemory`).

    Args:
        model: A prepared copy.
        optimizer: Makes the optimizer of the trainable parameters.
        filter_size: The features of lowest entropy to store per class; None stores all.
        alignment: The weight of the alignment with neighbours.
        neighbours: The nearest stored features of a sample.
        consistent: Whether only samples on which head and prototypes agree are distilled.
    """

    state_attributes = ("model", "updater", "memory")

    def __init__(
        self,
        model: Classifier,
        optimizer: OptimizerFactory,
        *,
        filter_size: int | None,
        alignment: float,
        neighbours: int,
        consistent: bool,
    ) -> None:
        super().__init__(model)
        if neighbours < 1:
            raise TTCError(f"neighbours is a positive number, got {neighbours}")
        self.alignment, self.neighbours = alignment, neighbours
        self.consistent = consistent
        self.memory = SupportMemory(initial_supports(model, with_logits=True), filter_size, model.num_classes)
        self.updater = Updater(model.parameters(), optimizer)

    def adapt(self, x: Tensor) -> Tensor:
        """Store the batch, take a step, and return the logits (N, K) from before the step."""
        logits, features = self.model(x)
        new = Supports.plausible(features.detach(), require_finite(logits).detach(), with_logits=True)
        supports = self.memory.joined(x, new)
        loss = self._distillation(logits, features, supports)
        if self.alignment:
            loss = loss + self.alignment * self._alignment(logits, features.detach(), supports)
        self.updater(loss, len(x))
        self.memory.store(x, supports)
        return logits

    def infer(self, x: Tensor) -> Tensor:
        """Return the model's logits (N, K)."""
        return require_finite(self.model(x).logits)

    def _distillation(self, logits: Tensor, features: Tensor, supports: Supports) -> Tensor:
        """The cross-entropy of the prototypes' predictions with those of the head, which are constant."""
        cosines = prototype_cosines(features, supports.prototypes(self.model.num_classes))
        losses = -(_probability(logits.detach()) * cosines.log_softmax(1)).sum(1)
        agree = (cosines.argmax(1) == logits.argmax(1)) | (not self.consistent)
        return (losses * agree).sum() / agree.sum().clamp(min=1)

    def _alignment(self, logits: Tensor, features: Tensor, supports: Supports) -> Tensor:
        """The squared difference to the probabilities of the nearest stored features, weighted by their cosine."""
        assert supports.logits is not None
        cosines = F.normalize(features) @ F.normalize(supports.features).T
        near = cosines.topk(min(self.neighbours, len(supports.features)), dim=1)  # (N, k)
        others = _probability(supports.logits)[near.indices]  # (N, k, K)
        squares = (_probability(logits)[:, None] - others).square().sum(2)
        return (near.values * squares).mean()


def tsd(
    model: Classifier,
    *,
    optimizer: OptimizerFactory | None = None,
    filter_size: int | Literal["auto"] | None = "auto",
    alignment: float = 0.1,
    neighbours: int = 3,
    consistent: bool = True,
    trains: Literal["all parameters", "norm affine"] = "all parameters",
) -> TSD:
    """TSD: distills the head into prototypes of stored features, and aligns near features; trains all layers.

    Wang et al., "Feature Alignment and Uniformity for Test Time Adaptation", CVPR 2023. Per batch:

    1. Store features and logits, M of lowest entropy per class, the rows of the head being the first.
    2. Predict y = softmax of the cosines with the prototypes, the mean unit feature of each class.
    3. Uniformity: minimize the cross-entropy of y with the head's prediction p, constant, over the samples on which
       both predict the same class.
    4. Alignment: minimize cos(z, z_j) · ‖p - p_j‖² over the k nearest stored features z_j, with weight λ.
    5. Predict with the logits from before the step.

    Read for this: the abstract, a public review, and the authors' repository; the filter of step 3 and the weight λ are
    not in that code.

    Differs from the public code, whose defects are: softmax applied twice to p in step 3; features divided by the sum
    of their values where cosines are meant (an argument taken for the dimension is the order of the norm); step 4 with
    the opposite sign and weight 0, so that it has no effect; logits compared with probabilities there; and storing all
    samples drops one per class and batch.

    Args:
        optimizer: Makes the optimizer; Adam with lr 1e-4 unless given.
        filter_size: M: store the M samples of lowest entropy per class; ``"auto"`` is 100 up to ten classes, else 20;
            ``None`` stores all.
        alignment: λ, the weight of the alignment; our choice, as public descriptions give none.
        neighbours: k, the nearest stored features; the sample itself may be one of them.
        consistent: Whether only samples on which head and prototypes agree take part in step 3.
        trains: The parameters to train: all, or scale and shift of the normalization layers.
    """
    every = trains == "all parameters"
    return TSD(
        copy_with_trainable_parameters(model) if every else copy_with_trainable_norms(model),
        optimizer or partial(torch.optim.Adam, lr=1e-4),
        filter_size=supports_per_class(filter_size, model.num_classes),
        alignment=alignment,
        neighbours=neighbours,
        consistent=consistent,
    )


def _probability(logits: Tensor) -> Tensor:
    return logits.softmax(1, dtype=torch.promote_types(logits.dtype, torch.float32))


METHOD = Method(
    name="tsd",
    build=tsd,
    changes=("all parameters",),
    backwards=1,
    needs=("large batches", "linear head"),
    paper="Wang 2023",
    memory="100 features and logits per class up to ten classes, else 20",
)
