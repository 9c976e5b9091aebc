"""The image operations of automatic augmentation, with one magnitude per image and gradients to the magnitudes.

Every operation maps images (N, C, H, W) in [0, 1] and magnitudes (N,) to images in [0, 1]. Where rounding or a
threshold has no gradient, it passes straight through to image and magnitude.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ttc.clustering.colour_jitter import adjust_brightness, adjust_contrast, adjust_saturation

LEVELS = 256  # values of an 8-bit channel


class Operation(NamedTuple):
    """An operation and the range of its magnitude; a signed one is applied in a random direction."""

    apply: Callable[[Tensor, Tensor], Tensor]
    low: float = 0.0
    high: float = 1.0
    signed: bool = False


def shear_x(images: Tensor, magnitude: Tensor) -> Tensor:
    """Shift rows in proportion to their height."""
    return _affine(images, _like(magnitude, 1), magnitude, _like(magnitude, 0), _like(magnitude, 1))


def shear_y(images: Tensor, magnitude: Tensor) -> Tensor:
    """Shift columns in proportion to their place."""
    return _affine(images, _like(magnitude, 1), _like(magnitude, 0), magnitude, _like(magnitude, 1))


def translate_x(images: Tensor, magnitude: Tensor) -> Tensor:
    """Shift images sideways, by a fraction of half their width."""
    return _affine(images, *_identity(magnitude), shift_x=magnitude)


def translate_y(images: Tensor, magnitude: Tensor) -> Tensor:
    """Shift images up or down, by a fraction of half their height."""
    return _affine(images, *_identity(magnitude), shift_y=magnitude)


def rotate(images: Tensor, magnitude: Tensor) -> Tensor:
    """Rotate images by an angle in radians."""
    height, width = images.shape[-2:]
    cosine, sine = magnitude.cos(), magnitude.sin()
    return _affine(images, cosine, -sine * height / width, sine * width / height, cosine)


def sharpen(images: Tensor, magnitude: Tensor) -> Tensor:
    """Scale the distance of the pixels to a smoothed image: 0 smooths, 1 changes nothing."""
    kernel = torch.ones(3, 3).to(images)
    kernel[1, 1] = 5
    channels = images.shape[1]
    weight = (kernel / kernel.sum()).expand(channels, 1, 3, 3)
    smooth = F.conv2d(F.pad(images, (1, 1, 1, 1), mode="replicate"), weight, groups=channels)
    return (smooth + magnitude.view(-1, 1, 1, 1) * (images - smooth)).clamp(0, 1)


def autocontrast(images: Tensor, magnitude: Tensor) -> Tensor:
    """Stretch every channel to [0, 1]; a constant channel stays as it is."""
    low, high = images.amin((-2, -1), keepdim=True), images.amax((-2, -1), keepdim=True)
    return torch.where(high > low, (images - low) / torch.where(high > low, high - low, 1.0), images)


def invert(images: Tensor, magnitude: Tensor) -> Tensor:
    """Return the negative."""
    return 1 - images


def equalize(images: Tensor, magnitude: Tensor) -> Tensor:
    """Spread the values of every channel evenly, on 256 levels; a constant channel stays as it is."""
    with torch.no_grad():
        levels = (images.flatten(2) * (LEVELS - 1)).round().long()  # (N, C, H·W)
        counts = torch.zeros(*levels.shape[:2], LEVELS, device=images.device, dtype=images.dtype)
        cumulated = counts.scatter_add_(2, levels, torch.ones_like(levels, dtype=images.dtype)).cumsum(2)
        lowest = cumulated.gather(2, levels.amin(2, keepdim=True))
        rest = levels.shape[2] - lowest
        table = ((cumulated - lowest) / rest.clamp(min=1)).clamp(0, 1)
        spread = torch.where(rest > 0, table.gather(2, levels), images.flatten(2))
    return _straight_through(spread.view_as(images), images)


def solarize(images: Tensor, magnitude: Tensor) -> Tensor:
    """Return the negative of the pixels from a threshold on."""
    threshold = magnitude.view(-1, 1, 1, 1)
    solarized = torch.where(images < threshold, images, 1 - images)
    return solarized + (threshold - threshold.detach())


def posterize(images: Tensor, magnitude: Tensor) -> Tensor:
    """Reduce every channel to a number of bits."""
    bits = magnitude.view(-1, 1, 1, 1)
    step = 2 ** (8 - bits.detach().round())
    reduced = torch.floor((images.detach() * (LEVELS - 1)).round() / step) * step / (LEVELS - 1)
    return _straight_through(reduced, images) + (bits - bits.detach())


OPERATIONS: dict[str, Operation] = {
    "shear_x": Operation(shear_x, -0.3, 0.3, signed=True),
    "shear_y": Operation(shear_y, -0.3, 0.3, signed=True),
    "translate_x": Operation(translate_x, -0.45, 0.45, signed=True),
    "translate_y": Operation(translate_y, -0.45, 0.45, signed=True),
    "rotate": Operation(rotate, -math.pi / 6, math.pi / 6, signed=True),
    "contrast": Operation(adjust_contrast, 0.1, 1.9),
    "colour": Operation(adjust_saturation, 0.1, 1.9),
    "brightness": Operation(adjust_brightness, 0.1, 1.9),
    "sharpness": Operation(sharpen, 0.1, 1.9),
    "autocontrast": Operation(autocontrast),
    "invert": Operation(invert),
    "equalize": Operation(equalize),
    "solarize": Operation(solarize, 0.0, 1.0),
    "posterize": Operation(posterize, 4.0, 8.0),
}
"""The operations by name."""


def _straight_through(value: Tensor, images: Tensor) -> Tensor:
    """Return ``value`` with the gradient of ``images``."""
    return value + (images - images.detach())


def _like(magnitude: Tensor, value: float) -> Tensor:
    return torch.full_like(magnitude, value)


def _identity(magnitude: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    one, zero = _like(magnitude, 1), _like(magnitude, 0)
    return one, zero, zero, one


def _affine(
    images: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor,
    *,
    shift_x: Tensor | None = None,
    shift_y: Tensor | None = None,
) -> Tensor:
    """Resample images at (a·x + b·y + shift_x, c·x + d·y + shift_y) in the coordinates of ``grid_sample``."""
    zero = _like(a, 0)
    rows = [a, b, zero if shift_x is None else shift_x, c, d, zero if shift_y is None else shift_y]
    grid = F.affine_grid(torch.stack(rows, 1).view(-1, 2, 3), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
