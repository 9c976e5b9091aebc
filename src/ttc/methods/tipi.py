"""TIPI: predictions made invariant to small adversarial perturbations.

Nguyen et al., "TIPI: Test Time Adaptation with Transformation Invariance", CVPR 2023.
"""

from collections.abc import Sequence
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ttc.clustering import OptimizerFactory, Updater, default_optimizer, in_input_units, softmax_entropy
from ttc.core import Adapter, Classifier, require_finite, seeded_generator
from ttc.errors import TTCError
from ttc.methods.method import Method
from ttc.nn import RunningNorm, copy_with_trainable_norms, track_statistics

MAIN, ADVERSARIAL = 0, 1  # the two sets of statistics that share one scale and shift


class TIPI(Adapter):
    """Minimizes KL(p(x + δ) ‖ p(x)) for a perturbation δ one sign-gradient step away, then predicts again."""

    state_attributes = ("model", "updater", "calls")

    def __init__(
        self,
        model: Classifier,
        updater: Updater,
        *,
        epsilon: float,
        entropy_weight: float,
        random_start: bool,
        batch_statistics_above: int | None,
        standardized: tuple[Sequence[float], Sequence[float]] | None,
        seed: int,
    ) -> None:
        super().__init__(model)
        self.updater = updater
        self.epsilon, self.standardized = epsilon, standardized
        self.entropy_weight, self.random_start = entropy_weight, random_start
        self.batch_statistics_above = batch_statistics_above
        self.seed, self.calls = seed, 0

    def adapt(self, x: Tensor) -> Tensor:
        """Update the model and return its logits (N, K) after the update."""
        before = self.state_dict()
        try:
            self.updater(self._loss(x), len(x))
            self.calls += 1
            return require_finite(self._predicted(x))
        except TTCError:  # the prediction comes after the update
            self.load_state_dict(before)
            raise

    def infer(self, x: Tensor) -> Tensor:
        """Return the logits (N, K) with the stored statistics."""
        return require_finite(self.model(x).logits)

    def _loss(self, x: Tensor) -> Tensor:
        bound = in_input_units(torch.full_like(x[:1], self.epsilon), self.standardized)
        delta = torch.zeros_like(x, requires_grad=not self.random_start)
        with track_statistics(self.model, branch=MAIN):
            logits = require_finite(self.model(x + delta).logits)
        reference = logits.detach().log_softmax(1)
        with track_statistics(self.model, branch=ADVERSARIAL):
            perturbed = logits
            if self.random_start:
                generator = seeded_generator(self.seed, self.calls)
                uniform = (torch.rand(x.shape, generator=generator) * 2 - 1).to(x)
                delta = (bound * uniform).requires_grad_(True)
                perturbed = self.model(x + delta).logits
            reused = perturbed is logits  # else the activations of this pass are freed before the next one
            (ascent,) = torch.autograd.grad(_divergence(perturbed, reference).mean(), delta, retain_graph=reused)
            moved = delta.detach() + bound * ascent.sign()
            adversarial = require_finite(self.model(x + moved.clamp(-bound, bound)).logits)
        losses = _divergence(adversarial, reference)
        if self.entropy_weight:
            losses = losses + self.entropy_weight * softmax_entropy(logits)
        return losses.mean()

    @torch.no_grad()
    def _predicted(self, x: Tensor) -> Tensor:
        if self.batch_statistics_above is not None and len(x) > self.batch_statistics_above:
            with track_statistics(self.model, branch=MAIN):
                return self.model(x).logits
        return self.model(x).logits


def tipi(
    model: Classifier,
    *,
    optimizer: OptimizerFactory | None = None,
    epsilon: float = 2 / 255,
    entropy_weight: float | None = None,
    random_start: bool | None = None,
    batch_statistics_above: int | Literal["auto"] | None = "auto",
    lr_reference_batch: float | Literal["auto"] | None = "auto",
    standardized: tuple[Sequence[float], Sequence[float]] | None = None,
    seed: int = 0,
) -> TIPI:
    """TIPI: makes predictions invariant to small adversarial perturbations, then predicts again.

    Nguyen et al., CVPR 2023. Options left out follow the original's settings for the number of classes: CIFAR-10 up to
    50 classes, CIFAR-100 up to 500, ImageNet above.

    Without ``random_start`` the direction of the perturbation is the sign of rounding noise, because the divergence has
    no slope at δ = 0; that is how the original runs on CIFAR.
    Differs from the original: ε is in pixels on ImageNet too, where the original perturbs standardized images.

    Args:
        optimizer: Makes the optimizer; Adam with lr 1e-3 below 500 classes, else SGD with lr 2.5e-4 and momentum 0.9.
        epsilon: ε, the bound of the perturbation in pixels of [0, 1].
        entropy_weight: The weight of the entropy in the loss; 0, 5 or 1 by number of classes unless given.
        random_start: Whether the perturbation starts at a random point; for ImageNet unless given.
        batch_statistics_above: Predict with the statistics of a batch of more images than this, else with the running
            ones; 64, on ImageNet never.
        lr_reference_batch: The learning rate is lr · N / ``lr_reference_batch``; 200, on ImageNet 64, and constant with
            an ``optimizer`` of your own.
        standardized: ``(mean, std)``, if the images you pass were standardized with them: ``epsilon`` stays in pixels.
            Not together with ``normalize``, with which you pass images in [0, 1].
        seed: The seed of random starts.
    """
    small, large = model.num_classes <= 50, model.num_classes > 500
    default_reference = None if optimizer else 64.0 if large else 200.0
    reference = default_reference if lr_reference_batch == "auto" else lr_reference_batch
    above = (None if large else 64) if batch_statistics_above == "auto" else batch_statistics_above
    prepared = copy_with_trainable_norms(model, partial(RunningNorm, branches=2, bounded=True))
    make = optimizer or default_optimizer(model.num_classes)
    return TIPI(
        prepared,
        Updater(prepared.parameters(), make, reference_batch=reference),
        epsilon=epsilon,
        entropy_weight=(0.0 if small else 1.0 if large else 5.0) if entropy_weight is None else entropy_weight,
        random_start=large if random_start is None else random_start,
        batch_statistics_above=above,
        standardized=standardized,
        seed=seed,
    )


def _divergence(logits: Tensor, log_reference: Tensor) -> Tensor:
    """KL(softmax(logits) ‖ reference) of each row: (N,)."""
    log_probability = logits.log_softmax(1)
    return F.kl_div(log_reference, log_probability, reduction="none", log_target=True).sum(1)


METHOD = Method(
    name="tipi",
    build=tipi,
    changes=("norm affine", "norm statistics"),
    forwards=(3, 4),
    backwards=2,
    predicts="after",
    memory="two sets of running statistics",
    needs=("source statistics",),
    paper="Nguyen 2023",
)
