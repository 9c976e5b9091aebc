"""The strong augmentation of contrastive learning, drawn per image (MoCo v2, without its crop)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ttc.clustering.batch_augmentation import Normalize, from_pixels, gaussian_blur, to_pixels
from ttc.clustering.colour_jitter import (
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
    grey,
)
from ttc.clustering.views import random_flip

JITTER = (
    (adjust_brightness, 0.6, 1.4),
    (adjust_contrast, 0.6, 1.4),
    (adjust_saturation, 0.6, 1.4),
    (adjust_hue, -0.1, 0.1),
)
RADIUS = 6  # three times the largest standard deviation of the blur


def strong_view(x: Tensor, generator: torch.Generator, normalize: Normalize | None = None) -> Tensor:
    """Augment each image by itself: colour jitter (p 0.8), grey (p 0.2), Gaussian blur (p 0.5) and flip (p 0.5).

    The order of the jitter's four operations is drawn per batch, their factors per image.

    Args:
        x: Images (N, C, H, W).
        generator: Where everything is drawn from, on the CPU.
        normalize: ``(mean, std)`` of standardized images; ``None`` for images in [0, 1].

    Returns:
        Images like ``x``.

    Example:
        >>> strong_view(torch.rand(2, 3, 8, 8), torch.Generator().manual_seed(0)).shape
        torch.Size([2, 3, 8, 8])
    """
    images = to_pixels(x, normalize).clamp(0, 1)
    jittered = images
    for index in torch.randperm(len(JITTER), generator=generator).tolist():
        operation, low, high = JITTER[index]
        jittered = operation(jittered, _uniform(images, low, high, generator))
    images = torch.where(_chance(images, 0.8, generator), jittered, images)
    images = torch.where(_chance(images, 0.2, generator), grey(images).expand_as(images), images)
    padded = F.pad(images, (RADIUS,) * 4, mode="replicate")
    blurred = gaussian_blur(padded, _uniform(images, 0.1, 2.0, generator), RADIUS)
    images = torch.where(_chance(images, 0.5, generator), blurred, images)
    return from_pixels(random_flip(images, generator).clamp(0, 1), normalize).to(x.dtype)


def _uniform(images: Tensor, low: float, high: float, generator: torch.Generator) -> Tensor:
    return (low + (high - low) * torch.rand(len(images), generator=generator)).to(images)


def _chance(images: Tensor, probability: float, generator: torch.Generator) -> Tensor:
    drawn = torch.rand(len(images), generator=generator) < probability
    return drawn.to(images.device).view(-1, 1, 1, 1)
