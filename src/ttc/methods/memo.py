"""MEMO: for each image alone, one step towards the same confident prediction on many views of it.

Zhang et al., "MEMO: Test Time Robustness via Adaptation and Augmentation", NeurIPS 2022.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from ttc.clustering import OptimizerFactory, augmix, mean_of_probabilities, softmax_entropy
from ttc.core import Adapter, Classifier, require_finite, seeded_generator
from ttc.core.state import Snapshot
from ttc.errors import TTCError
from ttc.methods.method import Method
from ttc.nn import BlendNorm, copy_with_trainable_parameters


class MEMO(Adapter):
    """Predicts each image with parameters one step away from those of the source, on the entropy over its views."""

    state_attributes = ("model", "images")

    def __init__(
        self,
        model: Classifier,
        optimizer: OptimizerFactory,
        *,
        views: int,
        normalize: tuple[Sequence[float], Sequence[float]] | None,
        seed: int,
    ) -> None:
        super().__init__(model)
        if views < 1:
            raise TTCError(f"views is a positive number of views per image, got {views}")
        self.optimizer, self.views, self.normalize = optimizer, views, normalize
        self.seed, self.images = seed, 0  # images seen so far: each has draws of its own, whatever the batch

    def adapt(self, x: Tensor) -> Tensor:
        """Return the logits (N, K) of each image after a step on that image; the step is then undone."""
        start = Snapshot(self.model)
        rows = []
        for index, image in enumerate(x):
            try:
                rows.append(self._predict_one(image, self.images + index))
            finally:
                start.restore(self.model)
        logits = require_finite(torch.cat(rows))
        self.images += len(x)
        return logits

    @property
    def uses_batch(self) -> bool:
        """Whether the prediction of an image depends on the others of its batch: it does not."""
        return False

    def _predict_one(self, image: Tensor, number: int) -> Tensor:
        generator = seeded_generator(self.seed, number)
        views = augmix(image, self.views, generator, self.normalize)
        logits = require_finite(self.model(views).logits)
        loss = softmax_entropy(mean_of_probabilities(list(logits[:, None]))).mean()
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        optimizer = self.optimizer(parameters)
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            return self.model(image[None]).logits


def memo(
    model: Classifier,
    *,
    optimizer: OptimizerFactory | None = None,
    views: int | None = None,
    alpha: float = 1 / 17,
    normalize: tuple[Sequence[float], Sequence[float]] | None = None,
    seed: int = 0,
) -> MEMO:
    """MEMO: one step per image on the entropy of the mean prediction over AugMix views; nothing is remembered.

    Zhang et al., "MEMO: Test Time Robustness via Adaptation and Augmentation", NeurIPS 2022. Per image: draw B AugMix
    views, take one step on all parameters towards a small entropy of their mean probability, predict the plain image
    with the stepped parameters, and restore the source parameters. BatchNorm uses (1 - α) · source + α · batch
    statistics. Images do not influence each other, so batches only share a call.

    Cost per image: B + 1 forward and B backward passes.

    Differs from the public code: what geometric operations bring in from outside is grey, where an integer fill makes
    it dark red; operations work on tensors, so values differ from PIL's by rounding.

    Args:
        optimizer: Makes the optimizer of the one step; SGD without momentum, with lr 5e-3 below 500 classes, else
            2.5e-4.
        views: B, the views per image; 32 below 500 classes, else 64.
        alpha: α, the weight of the statistics of the views in BatchNorm, in [0, 1].
        normalize: ``(mean, std)`` of standardized images, so that operations work on pixels in [0, 1].
        seed: The seed of the views.
    """
    large = model.num_classes >= 500
    return MEMO(
        copy_with_trainable_parameters(model, partial(BlendNorm, alpha=alpha)),
        optimizer or partial(torch.optim.SGD, lr=2.5e-4 if large else 5e-3),
        views=(64 if large else 32) if views is None else views,
        normalize=normalize,
        seed=seed,
    )


METHOD = Method(
    name="memo",
    build=memo,
    changes=("all parameters",),
    forwards=(33, 65),
    backwards=(32, 64),
    needs=("source statistics",),
    paper="Zhang 2022",
    predicts="after",
    memory="one copy of the parameters during a call",
)
