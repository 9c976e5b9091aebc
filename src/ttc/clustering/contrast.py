"""Contrastive losses between feature vectors."""

import torch
import torch.nn.functional as F
from torch import Tensor


def contrastive_loss(views: Tensor, temperature: float) -> Tensor:
    """Pull the views of one sample together and push all others apart, with every view as an anchor.

    .. math:: -\\frac{1}{NV} \\sum_a \\frac{1}{V-1} \\sum_{p \\ne a} \\log
        \\frac{e^{z_a \\cdot z_p / \\tau}}{\\sum_{b \\ne a} e^{z_a \\cdot z_b / \\tau}}

    with unit vectors z, p over the other views of the sample of a, and b over all vectors but a.

    Args:
        views: V vectors per sample (N, V, D), of any length.
        temperature: τ.

    Returns:
        The mean over all anchors.

    Example:
        >>> contrastive_loss(torch.eye(2)[:, None].expand(2, 2, 2), 0.1).round(decimals=3).item()
        0.0
    """
    count, number = views.shape[:2]
    vectors = F.normalize(views.flatten(0, 1), dim=1)  # (N·V, D), the views of a sample next to each other
    own = torch.eye(count * number, dtype=torch.bool, device=views.device)
    logits = (vectors @ vectors.T / temperature).masked_fill(own, -torch.inf)
    sample = torch.arange(count * number, device=views.device) // number
    positive = (sample[:, None] == sample) & ~own
    log_probability = logits.log_softmax(1).masked_fill(~positive, 0)
    return -log_probability.sum(1).mean() / (number - 1)
