"""The entropy of a prediction."""

import torch
from torch import Tensor


def softmax_entropy(logits: Tensor) -> Tensor:
    """Compute the entropy of each row's softmax, in nats and in float32 at least.

    .. math:: H(x) = -\\sum_k p_k \\log p_k

    Args:
        logits: Logits (N, K).

    Returns:
        Entropies (N,), differentiable.

    Example:
        >>> softmax_entropy(torch.zeros(1, 4)).exp().round(decimals=4).tolist()
        [4.0]
    """
    log_probability = logits.log_softmax(1, dtype=torch.promote_types(logits.dtype, torch.float32))
    log_probability = log_probability.clamp(min=-1e4)  # the probability is 0 there, and 0 · -inf would be NaN
    return -(log_probability.exp() * log_probability).sum(1)
