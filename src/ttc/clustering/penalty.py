"""Penalties on how far adaptation moves the parameters from their source values."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

from ttc.core.adapter import require_finite
from ttc.core.classifier import Classifier
from ttc.core.part import Part
from ttc.errors import TTCError

Penalty = Callable[[Classifier], Tensor]
"""Maps a model to a scalar that is added to the loss."""


class FisherPenalty(Part):
    """Holds back the trainable parameters that matter most for the source images (EATA).

    .. math:: \\beta \\sum_j F_j (\\theta_j - \\theta_{0,j})^2

    F is the mean over batches of the squared gradient of the cross-entropy with the model's own labels; it is the
    gradient of a batch's mean, so its scale falls as 1 / ``batch_size``.

    Args:
        model: A prepared copy, whose parameters are θ_0.
        images: Source images (M, C, H, W), without labels.
        weight: β.
        batch_size: The source images per batch.
    """

    state_attributes = ("fisher", "source")  # constants, but they move to devices and into files with the rest

    def __init__(self, model: Classifier, images: Tensor, *, weight: float, batch_size: int = 64) -> None:
        if weight < 0:
            raise TTCError(f"the weight of the Fisher penalty is not negative, got {weight}")
        if batch_size < 1:
            raise TTCError(f"the source images per batch are a positive number, got {batch_size}")
        self.weight = weight
        self.fisher = _fisher_information(model, images.split(batch_size))
        self.source = {name: parameter.detach().clone() for name, parameter in _trainable(model).items()}

    def __call__(self, model: Classifier) -> Tensor:
        terms = [
            (self.fisher[name] * (parameter - self.source[name]).square()).sum()
            for name, parameter in _trainable(model).items()
        ]
        return self.weight * torch.stack(terms).sum()


@torch.enable_grad()
def _fisher_information(model: Classifier, batches: tuple[Tensor, ...]) -> dict[str, Tensor]:
    parameters = _trainable(model)
    sums = [torch.zeros_like(parameter, dtype=_precise(parameter)) for parameter in parameters.values()]
    for images in batches:
        logits = require_finite(model(images).logits)
        loss = F.cross_entropy(logits, logits.argmax(1))
        for total, gradient in zip(sums, torch.autograd.grad(loss, list(parameters.values())), strict=True):
            total += gradient.to(total).square()
    return {name: total / len(batches) for name, total in zip(parameters, sums, strict=True)}


def _trainable(model: Classifier) -> dict[str, Parameter]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def _precise(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)
