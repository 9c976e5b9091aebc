"""AugMix without the operations that overlap the corruption benchmarks: many mixed views of one image.

Hendrycks et al., "AugMix: A Simple Data Processing Method to Improve Robustness and Uncertainty", ICLR 2020.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ttc.errors import TTCError

CHAINS, DEPTH = 3, 3  # chains per view, and the largest number of operations in a chain
TONES = ("autocontrast", "equalize", "posterize", "solarize")
SHAPES = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
OPERATIONS = TONES + SHAPES
SMALL_SIDE = 64  # images up to this size are cropped after padding, larger ones cropped and enlarged
GREY = 128 / 255  # fills what a geometric operation brings in from outside the image


def augmix(
    image: Tensor,
    count: int,
    generator: torch.Generator,
    normalize: tuple[Sequence[float], Sequence[float]] | None = None,
) -> Tensor:
    """Draw AugMix views of an image.

    Each view crops and flips the image at random, passes it through three chains of one to three operations, and mixes
    the chains (Dirichlet weights) with the cropped image (uniform weight).

    Args:
        image: One image (C, H, W), in [0, 1] unless standardized.
        count: The number of views.
        generator: Where the draws come from, on the CPU.
        normalize: ``(mean, std)`` of a standardized image.

    Returns:
        Views (count, C, H, W), on the scale of the image.

    Raises:
        TTCError: If ``image`` is not (C, H, W).
    """
    if image.ndim != 3:
        raise TTCError(f"AugMix takes images (C, H, W), got shape {tuple(image.shape)}; choose another method")
    pixels = image.to(torch.promote_types(image.dtype, torch.float32))
    mean, std = (_channel(values, pixels) for values in normalize) if normalize else (0.0, 1.0)
    start = _crop_and_flip((pixels * std + mean).clamp(0, 1), count, generator)
    weights = -torch.rand(count, CHAINS, generator=generator).clamp(min=1e-12).log()  # exponential: Dirichlet(1, 1, 1)
    weights = (weights / weights.sum(1, keepdim=True)).to(pixels)
    amount = torch.rand(count, 1, 1, 1, generator=generator).to(pixels)
    chains = _run_chains(start.repeat_interleave(CHAINS, 0), generator).unflatten(0, (count, CHAINS))
    mixed = torch.einsum("vc,vcijk->vijk", weights, chains)
    return ((torch.lerp(start, mixed, amount) - mean) / std).to(image.dtype)


def _run_chains(images: Tensor, generator: torch.Generator) -> Tensor:
    """Apply one to three random operations to each image."""
    depth = torch.randint(1, DEPTH + 1, (len(images),), generator=generator)
    for step in range(DEPTH):
        kind = torch.randint(len(OPERATIONS), (len(images),), generator=generator)
        level = torch.rand(len(images), generator=generator) * 0.9 + 0.1
        sign = torch.randint(2, (len(images),), generator=generator) * 2 - 1
        kind = torch.where(depth > step, kind, -1)
        images = apply_operations(images, kind, level, sign)
    return images


def apply_operations(images: Tensor, kind: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Apply one operation to each image.

    Args:
        images: (N, C, H, W) in [0, 1].
        kind: The index of each image's operation in ``OPERATIONS`` (N,), -1 for none; on the CPU, like the next two.
        level: The strength u of each operation (N,) in [0, 1].
        sign: The direction of each geometric operation (N,), 1 or -1.

    Returns:
        New images (N, C, H, W).
    """
    images = images.clone()
    for index, name in enumerate(TONES):
        rows = (kind == index).nonzero().squeeze(1)
        if len(rows):
            chosen, strength = images[rows], level[rows].to(images).view(-1, 1, 1, 1)
            images[rows] = _change_tone(name, chosen, strength)
    rows = (kind >= len(TONES)).nonzero().squeeze(1)
    if len(rows):
        theta = _affine_maps(kind[rows], level[rows], sign[rows], images.shape[-2:])
        images[rows] = _warp(images[rows], theta)
    return images


def _change_tone(name: str, images: Tensor, level: Tensor) -> Tensor:
    values = (images * 255).round()
    if name == "solarize":
        threshold = 256 - (25.6 * level).floor()
        return torch.where(values >= threshold, 255 - values, values) / 255
    if name == "posterize":  # 4 - ⌊0.4u⌋ is always 4 bits
        return (values / 16).floor() * 16 / 255
    return _autocontrast(images) if name == "autocontrast" else _equalize(values) / 255


def _autocontrast(images: Tensor) -> Tensor:
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    return torch.where(high > low, (images - low) / (high - low).clamp(min=1e-6), images).clamp(0, 1)


def _equalize(values: Tensor) -> Tensor:
    """Spread the values 0..255 of each channel so that each is about equally frequent."""
    flat = values.flatten(2).long()  # (N, C, H·W)
    histogram = values.new_zeros(*flat.shape[:2], 256).scatter_add_(2, flat, values.new_ones(flat.shape))
    below = histogram.cumsum(2) - histogram
    top = histogram.gather(2, flat.amax(2, keepdim=True))  # how often the largest value occurs
    step = ((flat.shape[2] - top) / 255).floor()  # 0 if there is one value, or too few pixels to spread
    table = ((below + (step / 2).floor()) / step.clamp(min=1)).floor().clamp(0, 255)
    spread = table.gather(2, flat)
    return torch.where(step > 0, spread, flat.to(spread)).view(values.shape).to(values)


def _affine_maps(kind: Tensor, level: Tensor, sign: Tensor, size: Sequence[int]) -> Tensor:
    """Return maps (N, 2, 3) from output to input, in coordinates that run from -1 to 1."""
    height, width = size
    names = [OPERATIONS[index] for index in kind.tolist()]

    def amounts(name: str, values: Tensor) -> Tensor:
        return torch.where(torch.tensor([found == name for found in names]), sign * values, 0.0)

    angle = amounts("rotate", (3 * level).floor()) * math.pi / 180
    shear_x, shear_y = amounts("shear_x", 0.03 * level), amounts("shear_y", 0.03 * level)
    shift_x = amounts("translate_x", (level * width / 30).floor()) * 2 / width
    shift_y = amounts("translate_y", (level * height / 30).floor()) * 2 / height
    first = [angle.cos(), (shear_x - angle.sin()) * height / width, shift_x]
    second = [(shear_y + angle.sin()) * width / height, angle.cos(), shift_y]
    return torch.stack([*first, *second], 1).view(-1, 2, 3)


def _warp(images: Tensor, theta: Tensor) -> Tensor:
    grid = F.affine_grid(theta.to(images), list(images.shape), align_corners=False)
    return F.grid_sample(images - GREY, grid, mode="bilinear", padding_mode="zeros", align_corners=False) + GREY


def _crop_and_flip(image: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return crops of one image, each flipped with probability one half: (count, C, H, W)."""
    height, width = image.shape[-2:]
    flipped = torch.rand(count, generator=generator) < 0.5
    if max(height, width) <= SMALL_SIDE:
        padded = F.pad(image, (4, 4, 4, 4))
        corners = torch.randint(9, (count, 2), generator=generator).tolist()
        crops = torch.stack([padded[:, top : top + height, left : left + width] for top, left in corners])
    else:
        area = torch.rand(count, generator=generator) * 0.92 + 0.08
        aspect = ((torch.rand(count, generator=generator) * 2 - 1) * math.log(4 / 3)).exp()
        scale = torch.stack([(area * aspect).sqrt(), (area / aspect).sqrt()]).clamp(max=1)
        shift = (torch.rand(2, count, generator=generator) * 2 - 1) * (1 - scale)
        zero = torch.zeros(count)
        theta = torch.stack([scale[0], zero, shift[0], zero, scale[1], shift[1]], 1).view(-1, 2, 3)
        crops = _warp(image.expand(count, *image.shape), theta)
    return torch.where(flipped.to(image.device).view(-1, 1, 1, 1), crops.flip(-1), crops)


def _channel(values: Sequence[float], like: Tensor) -> Tensor:
    return torch.as_tensor(values).to(like).view(-1, 1, 1)
