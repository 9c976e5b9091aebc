"""Colour operations on images (N, C, H, W) in [0, 1], with one factor for the batch or one per image."""

import torch
from torch import Tensor

LUMA = (0.299, 0.587, 0.114)  # weights of red, green and blue in grey (ITU-R BT.601)


def adjust_brightness(images: Tensor, factor: float | Tensor) -> Tensor:
    """Multiply the pixels.

    >>> adjust_brightness(torch.full((1, 3, 1, 1), 0.25), 2.0).flatten().tolist()
    [0.5, 0.5, 0.5]
    """
    return (images * _per_image(factor)).clamp(0, 1)


def adjust_contrast(images: Tensor, factor: float | Tensor) -> Tensor:
    """Scale the distance of the pixels to the mean grey of their image.

    >>> adjust_contrast(torch.tensor([0.25, 0.75]).view(1, 1, 1, 2), 0.5).flatten().tolist()
    [0.375, 0.625]
    """
    return _blend(grey(images).mean((-2, -1), keepdim=True), images, factor)


def adjust_saturation(images: Tensor, factor: float | Tensor) -> Tensor:
    """Scale the distance of the pixels to their own grey; images that are not RGB are returned as they are.

    >>> adjust_saturation(torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1), 0.0).std().item()
    0.0
    """
    return _blend(grey(images), images, factor) if images.shape[1] == 3 else images


def adjust_hue(images: Tensor, shift: float | Tensor) -> Tensor:
    """Turn the colours by a fraction of the colour circle; images that are not RGB are returned as they are.

    >>> adjust_hue(torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1), 1 / 3).flatten().round(decimals=4).tolist()
    [0.0, 1.0, 0.0]
    """
    if images.shape[1] != 3:
        return images
    red, green, blue = images.unbind(1)
    value, low = images.amax(1), images.amin(1)
    chroma = value - low
    divisor = torch.where(chroma > 0, chroma, 1.0)
    sector = torch.where(  # 0 … 6 around the circle, from red
        value == red,
        (green - blue) / divisor,
        torch.where(value == green, 2 + (blue - red) / divisor, 4 + (red - green) / divisor),
    )
    turned = sector + 6 * (shift.view(-1, 1, 1) if isinstance(shift, Tensor) else shift)
    channels = []
    for offset in (5, 3, 1):
        k = (turned + offset) % 6
        channels.append(value - chroma * torch.minimum(k, 4 - k).clamp(0, 1))
    return torch.stack(channels, 1)


def adjust_gamma(images: Tensor, exponent: float | Tensor) -> Tensor:
    """Raise the pixels to a power.

    >>> adjust_gamma(torch.full((1, 1, 1, 1), 0.5), 2.0).item()
    0.25
    """
    return images.clamp(1e-8, 1) ** _per_image(exponent)


def grey(images: Tensor) -> Tensor:
    """Return the grey of RGB images, or the mean over channels of others: (N, 1, H, W)."""
    if images.shape[1] != 3:
        return images.mean(1, keepdim=True)
    return (images * torch.tensor(LUMA).to(images).view(1, 3, 1, 1)).sum(1, keepdim=True)


def _blend(base: Tensor, images: Tensor, factor: float | Tensor) -> Tensor:
    return (base + _per_image(factor) * (images - base)).clamp(0, 1)


def _per_image(factor: float | Tensor) -> float | Tensor:
    return factor.view(-1, 1, 1, 1) if isinstance(factor, Tensor) else factor
