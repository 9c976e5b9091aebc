"""A trainable filter of the images: one number that smooths or sharpens them."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Sharpness(nn.Module):
    """Adds ``amount`` times the detail of an image to it, which is what smoothing over 3 x 3 pixels removes.

    With -1 an image is smoothed, as suits noise, with 1 its detail is doubled, as suits blur, and with 0, where it
    starts, it stays as it is. Learned with the entropy of the predictions, ``amount`` finds what suits a domain: over
    such filters, predictions are most certain where they are most often right. A batch of other data than images
    (N, C, H, W) is returned as it is.

    Example:
        >>> layer, image = Sharpness(), torch.tensor([[[[0.0, 0.0, 4.0, 0.0, 0.0]]]])
        >>> torch.equal(layer(image), image)
        True
        >>> with torch.no_grad():
        ...     _ = layer.amount.fill_(-1)
        >>> layer(image).flatten().tolist()
        [0.0, 1.0, 2.0, 1.0, 0.0]
    """

    limit = 1.0  # of the amount, on both sides

    def __init__(self) -> None:
        super().__init__()
        self.amount = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return x if x.ndim != 4 else x + self.amount * (x - smooth(x))

    @torch.no_grad()
    def limit_(self) -> None:
        """Bring the amount back into its limits, in place."""
        self.amount.clamp_(-self.limit, self.limit)


def smooth(x: Tensor) -> Tensor:
    """Average each pixel of images (N, C, H, W) with its neighbours, with the weights 1/4, 1/2, 1/4 on both axes."""
    x = F.pad(x, (1, 1, 1, 1), mode="replicate")
    x = 0.5 * x[..., 1:-1] + 0.25 * (x[..., 2:] + x[..., :-2])
    return 0.5 * x[..., 1:-1, :] + 0.25 * (x[..., 2:, :] + x[..., :-2, :])
