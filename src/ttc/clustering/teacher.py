"""A mean teacher: parameters that follow those of a student, and labels that the student learns from."""

import torch
from torch import Tensor, nn


@torch.no_grad()
def update_average_(average: nn.Module, model: nn.Module, momentum: float) -> None:
    """Move the parameters of ``average`` towards those of ``model``; buffers stay as they are.

    .. math:: \\tilde\\theta \\leftarrow m\\,\\tilde\\theta + (1-m)\\,\\theta

    Args:
        average: The teacher, changed in place.
        model: The student, built alike; parameters that are not trained are left out.
        momentum: m, the weight of the old value.

    Example:
        >>> teacher, student = nn.Linear(1, 1), nn.Linear(1, 1)
        >>> _ = nn.init.zeros_(teacher.weight), nn.init.ones_(student.weight)
        >>> update_average_(teacher, student, 0.75)
        >>> teacher.weight.item()
        0.25
    """
    pairs = zip(average.parameters(), model.parameters(), strict=True)
    for old, new in [(old, new) for old, new in pairs if new.requires_grad]:
        old.lerp_(new.to(old), 1 - momentum)


@torch.no_grad()
def restore_randomly_(model: nn.Module, source: nn.Module, probability: float, generator: torch.Generator) -> None:
    """Set each trainable scalar of ``model`` back to its value in ``source`` with a probability.

    Args:
        model: The model, changed in place.
        source: A model built alike.
        probability: The probability, drawn per scalar.
        generator: Where the draws come from, on the CPU.
    """
    for parameter, original in zip(model.parameters(), source.parameters(), strict=True):
        if parameter.requires_grad:
            restored = torch.rand(parameter.shape, generator=generator) < probability
            parameter.copy_(torch.where(restored.to(parameter.device), original, parameter))


def soft_cross_entropy(target: Tensor, logits: Tensor) -> Tensor:
    """The cross-entropy of each row with soft labels, both given as logits: (N, K), (N, K) -> (N,).

    .. math:: -\\sum_k \\mathrm{softmax}(t)_k \\log \\mathrm{softmax}(\\ell)_k

    >>> soft_cross_entropy(torch.zeros(1, 4), torch.zeros(1, 4)).exp().round(decimals=4).tolist()
    [4.0]
    """
    return -(target.softmax(1) * logits.log_softmax(1)).sum(1)


def symmetric_cross_entropy(target: Tensor, logits: Tensor) -> Tensor:
    """The mean of the cross-entropies in both directions, with gradients to both arguments: (N, K), (N, K) -> (N,).

    >>> symmetric_cross_entropy(torch.zeros(1, 4), torch.zeros(1, 4)).exp().round(decimals=4).tolist()
    [4.0]
    """
    return (soft_cross_entropy(target, logits) + soft_cross_entropy(logits, target)) / 2
