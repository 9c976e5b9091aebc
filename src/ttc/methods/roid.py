"""ROID: certainty- and diversity-weighted self-training with weight ensembling and prior correction.

Marsden et al., "Universal Test-time Adaptation through Weight Ensembling, Diversity Weighting, and Prior Correction",
WACV 2024.
"""

from typing import Literal

import torch
from torch import Tensor

from ttc.clustering import (
    BatchAugmentation,
    Normalize,
    OptimizerFactory,
    Updater,
    default_optimizer,
    softmax_entropy,
    symmetric_cross_entropy,
)
from ttc.core import Adapter, Classifier, freeze_statistics, require_finite, seeded_generator
from ttc.errors import TTCError
from ttc.methods.method import Method
from ttc.nn import copy_with_trainable_norms


class ROID(Adapter):
    """Learns from diverse, certain samples and their augmented copies, and stays close to the source parameters.

    Args:
        model: A prepared copy.
        updater: Takes the steps.
        augment: Makes the copies for the consistency loss; None leaves it out.
        temperature: τ of the weights exp(d·c/τ); None gives every sample the weight one.
        momentum: The weight of the old value in the moving average of predictions.
        ensemble_momentum: The weight of the adapted parameters when those of the source are mixed in after a step.
        prior_correction: What the smoothed prior of a batch multiplies: ``"logits"``, ``"probabilities"`` or None.
        seed: The seed of augmentations.
    """

    state_attributes = ("model", "updater", "mean_probability", "step")

    def __init__(
        self,
        model: Classifier,
        updater: Updater,
        *,
        augment: BatchAugmentation | None,
        temperature: float | None,
        momentum: float,
        ensemble_momentum: float,
        prior_correction: str | None,
        seed: int,
    ) -> None:
        if temperature is not None and temperature <= 0:
            raise TTCError(f"temperature is positive, got {temperature}")
        if not 0 <= ensemble_momentum <= 1:
            raise TTCError(f"ensemble_momentum is a weight in [0, 1], got {ensemble_momentum}")
        super().__init__(model)
        self.updater, self.augment, self.temperature = updater, augment, temperature
        self.momentum, self.ensemble_momentum = momentum, ensemble_momentum
        self.prior_correction, self.seed = prior_correction, seed
        self.mean_probability: Tensor | None = None  # None stands for the uniform distribution
        self.step = 0

    def adapt(self, x: Tensor) -> Tensor:
        """Return the corrected logits (N, K) from before the update."""
        logits = require_finite(self.model(x).logits)
        precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
        weights, average = self._weights(precise.detach())
        losses = weights * soft_likelihood_ratio(precise)
        if self.augment is not None:
            losses = losses + weights * self._inconsistency(x, precise, weights > 0, self.augment)
        if self.updater(losses.sum() / len(x), len(x)):
            self._mix_in_source()
        self.mean_probability = average
        self.step += 1
        return self._corrected(logits)

    def infer(self, x: Tensor) -> Tensor:
        """Return the corrected logits (N, K)."""
        return self._corrected(require_finite(self.model(x).logits))

    def _weights(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights (N,), zero for samples of little diversity, and the new moving average (K,)."""
        probability = logits.softmax(1)
        old = self.mean_probability
        old = torch.full_like(probability[0], 1 / len(probability[0])) if old is None else old
        average = self.momentum * old + (1 - self.momentum) * probability.mean(0)
        if self.temperature is None:
            return torch.ones_like(probability[:, 0]), average
        diversity = _unit_range(1 - torch.cosine_similarity(old[None], probability, dim=1))
        certainty = _unit_range(-softmax_entropy(logits))
        return (diversity >= diversity.mean()) * torch.exp(diversity * certainty / self.temperature), average

    def _inconsistency(self, x: Tensor, logits: Tensor, selected: Tensor, augment: BatchAugmentation) -> Tensor:
        """Return the symmetric cross-entropy (N,) between selected samples and their copies; zero for the others."""
        augmented = augment(x[selected], seeded_generator(self.seed, self.step))
        with freeze_statistics(self.model):
            other = require_finite(self.model(augmented).logits).to(logits)
        values = symmetric_cross_entropy(other, logits[selected])
        return torch.zeros_like(logits[:, 0]).masked_scatter(selected, values)

    @torch.no_grad()
    def _mix_in_source(self) -> None:
        source = self.initial_tensors
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad:
                parameter.lerp_(source[name].to(parameter), 1 - self.ensemble_momentum)

    def _corrected(self, logits: Tensor) -> Tensor:
        if self.prior_correction is None:
            return logits
        prior = logits.detach().to(torch.promote_types(logits.dtype, torch.float32)).softmax(1).mean(0)
        smoothing = max(1 / len(logits), 1 / len(prior)) / prior.max()
        prior = ((prior + smoothing) / (1 + smoothing * len(prior))).to(logits)
        return logits * prior if self.prior_correction == "logits" else logits + prior.log()


def soft_likelihood_ratio(logits: Tensor) -> Tensor:
    """Compute the negative soft likelihood ratio of each row: the entropy of p plus Σ p log(1 - p).

    .. math:: -\\sum_k q_k \\log(q_k / (1 - q_k) + 10^{-5}), \\quad q = \\min(p, 0.99)

    Unlike that of the entropy, its gradient does not vanish for confident predictions.

    Args:
        logits: (N, K).

    Returns:
        (N,).

    Example:
        >>> soft_likelihood_ratio(torch.zeros(1, 2)).round(decimals=4).abs().tolist()
        [0.0]
    """
    q = logits.softmax(1).clamp(max=0.99)
    return -(q * torch.log(q / (1 - q) + 1e-5)).sum(1)


def roid(
    model: Classifier,
    *,
    optimizer: OptimizerFactory | None = None,
    weighting: bool = True,
    consistency: bool = True,
    prior_correction: Literal["logits", "probabilities"] | None = "logits",
    ensemble_momentum: float = 0.99,
    momentum: float = 0.9,
    temperature: float = 1 / 3,
    normalize: Normalize | None = None,
    seed: int = 0,
) -> ROID:
    """ROID: self-training on diverse, certain samples, kept close to the source and corrected for the class prior.

    Marsden et al., "Universal Test-time Adaptation through Weight Ensembling, Diversity Weighting, and Prior
    Correction", WACV 2024.

    Per batch: d is one minus the cosine of a prediction with the moving average of predictions, c the negative entropy,
    both scaled to [0, 1] over the batch; samples with d below its mean are left out, the others have weight exp(d·c/τ).
    The step minimizes the weighted soft likelihood ratio and symmetric cross-entropy with an augmented copy, with
    gradients through both, divided by the size of the batch. Then 1 % of the source parameters is mixed in. The logits
    from before the step are multiplied by the smoothed mean prediction of the batch.

    Without ``weighting``, ``consistency``, ``prior_correction`` and mixing (``ensemble_momentum=1``) it is TENT with
    the soft likelihood ratio in place of the entropy.

    Differs from the public code, which was read: the loss is divided by the size of the batch at hand; there by a
    configured size, so that a short last batch counts less. Where all samples of a batch are equally diverse or
    certain, scaling gives 0 instead of 0/0, so a batch of one works. ``consistency`` works without ``weighting``. SGD
    has no Nesterov momentum.

    Args:
        optimizer: Makes the optimizer; Adam with lr 1e-3 below 500 classes, else SGD with lr 2.5e-4 and momentum 0.9.
        weighting: Whether samples are selected and weighted by diversity and certainty.
        consistency: Whether to learn from augmented copies too, at the cost of a second pass.
        prior_correction: ``"logits"`` multiplies the logits by the prior, as the public code does; ``"probabilities"``
            multiplies the probabilities; ``None`` leaves predictions as they are.
        ensemble_momentum: The weight of the adapted parameters when those of the source are mixed in after a step.
        momentum: The weight of the old value in the moving average of predictions.
        temperature: τ of the weights.
        normalize: ``(mean, std)`` of standardized images, so that augmentation works on pixels in [0, 1].
        seed: The seed of the augmentation.
    """
    prepared = copy_with_trainable_norms(model)
    augment = BatchAugmentation(padding="reflect", blur=None, noise=0.0, normalize=normalize)
    return ROID(
        prepared,
        Updater(prepared.parameters(), optimizer or default_optimizer(model.num_classes)),
        augment=augment if consistency else None,
        temperature=temperature if weighting else None,
        momentum=momentum,
        ensemble_momentum=ensemble_momentum,
        prior_correction=prior_correction,
        seed=seed,
    )


def _unit_range(values: Tensor) -> Tensor:
    """Scale values (N,) to [0, 1] over the batch; equal values become 0."""
    low, high = values.min(), values.max()
    return (values - low) / torch.where(high > low, high - low, 1)


METHOD = Method(
    name="roid",
    build=roid,
    changes=("norm affine",),
    forwards=(1, 2),
    backwards=(1, 2),
    needs=("large batches",),
    paper="Marsden 2024",
)
