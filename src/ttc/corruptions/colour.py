"""Brightness, saturation and contrast, in float64. Batches are uint8 (N, 3, H, W)."""

import torch
from torch import Tensor

from ttc.corruptions.filters import to_uint8
from ttc.corruptions.random_streams import RandomStreams


def brightness(x: Tensor, streams: RandomStreams, scale: float, offset: float) -> Tensor:
    """Raise the HSV value by ``offset``; hue and saturation do not change."""
    unit = x.double().div_(255)
    value = unit.amax(1, keepdim=True)
    drop = (value - unit).div_(value.clamp(min=1e-9))  # 0 in the brightest channel, the saturation in the darkest
    return to_uint8((value + offset).clamp_(0, 1) * drop.neg_().add_(1))


def saturate(x: Tensor, streams: RandomStreams, scale: float, factor: float, offset: float) -> Tensor:
    """Multiply the HSV saturation by ``factor`` and add ``offset``; a grey pixel has hue 0 and turns red."""
    unit = x.double().div_(255)
    value, least = unit.amax(1, keepdim=True), unit.amin(1, keepdim=True)
    span = value - least
    saturation = (span / value.clamp(min=1e-9)).mul_(factor).add_(offset).clamp_(0, 1)
    red = torch.tensor([0.0, 1.0, 1.0], dtype=unit.dtype, device=x.device)[:, None, None]
    drop = torch.where(span > 0, (value - unit) / span.clamp(min=1e-9), red)  # 0 … 1 from brightest to darkest
    return to_uint8(value * (1 - saturation * drop))


def contrast(x: Tensor, streams: RandomStreams, scale: float, factor: float) -> Tensor:
    """Multiply the distance of each pixel from the mean of its channel by ``factor``."""
    pixels = x.shape[2] * x.shape[3]
    mean = (
        x.sum((2, 3), keepdim=True, dtype=torch.int64).double().div_(255 * pixels)
    )  # integer sums are exact in any order
    return to_uint8((x.double().div_(255) - mean).mul_(factor).add_(mean))
