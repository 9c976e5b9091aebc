"""A trainable step that brings the statistics of single images together before they are pooled."""

import torch
from torch import Tensor, nn


class Equalization(nn.Module):
    """Scales and shifts each image towards given statistics, as far as its own are trusted.

    .. math:: y_n = (x_n - \\mu_n) \\frac{\\sigma}{\\sigma_n} + \\mu, \\quad \\mu_n = \\mu + w (m_n - \\mu), \\quad
        \\sigma_n^2 = (1 - w) \\sigma^2 + w v_n + w (1 - w) (m_n - \\mu)^2

    per channel, with μ and σ² the given statistics, m_n and v_n those of image n over its pixels, and w half of the
    ``amount``; with 0 images stay as they are. Where a stream mixes domains, images differ in the first layers by their
    corruption, which statistics of the stream cannot remove and a larger weight does; in one domain they differ by what
    they show, which is to stay. Learned with the entropy of the predictions, ``amount`` follows.

    Example:
        >>> step, mean, variance = Equalization(), torch.tensor([4.0]), torch.tensor([5.0])
        >>> with torch.no_grad():
        ...     _ = step.amount.fill_(1)
        >>> scale, shift = step(torch.tensor([[2.0], [6.0]]), torch.tensor([[1.0], [1.0]]), mean, variance)
        >>> bool((torch.tensor([[2.0], [6.0]]) * scale + shift - mean).abs().max() < 2)  # nearer than before
        True
    """

    start, limits = 0.2, (0.0, 1.0)  # of the amount

    def __init__(self) -> None:
        super().__init__()
        self.amount = nn.Parameter(torch.tensor(self.start))

    def forward(self, means: Tensor, variances: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scale and the shift of each image, (N, C).

        Args:
            means: Those of the images, (N, C).
            variances: Those of the images, (N, C).
            mean: The given mean, (C,).
            variance: The given variance, (C,).
        """
        weight = (self.amount / 2).to(mean.dtype)
        apart = means - mean
        spread = (1 - weight) * variance + weight * variances + weight * (1 - weight) * apart.square()
        scale = (variance / spread).sqrt()
        return scale, mean - (mean + weight * apart) * scale

    @torch.no_grad()
    def limit_(self) -> None:
        """Bring the amount back into its limits, in place."""
        self.amount.clamp_(*self.limits)
