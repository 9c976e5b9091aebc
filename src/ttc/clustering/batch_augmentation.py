"""Random augmentations of a batch: colour jitter, affine map, blur, flip and noise, drawn from a generator.

Images are in [0, 1], or standardized when ``normalize`` says how. Everything is computed in float32 at least.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ttc.clustering.colour_jitter import (
    adjust_brightness,
    adjust_contrast,
    adjust_gamma,
    adjust_hue,
    adjust_saturation,
)
from ttc.errors import TTCError

Normalize = tuple[Sequence[float], Sequence[float]]
Range = tuple[float, float]
BLUR_RADIUS = 2  # a kernel of 5 × 5


@dataclass(frozen=True)
class BatchAugmentation:
    """The augmentation of CoTTA, RoTTA and RMT: one draw of the parameters per batch, noise per pixel.

    In this order: clip, colour jitter with its five operations in random order, edge padding by half the size, affine
    map, Gaussian blur, crop to the size, horizontal flip with probability ½, Gaussian noise, clip.

    Differs from public versions: translations are real numbers of pixels, not whole ones.

    Args:
        brightness: Range of the factor of brightness.
        contrast: Range of the factor of contrast.
        saturation: Range of the factor of saturation; images that are not RGB are left as they are.
        hue: Range of the shift of hue, as a fraction of the colour circle; RGB images only.
        gamma: Range of the exponent.
        degrees: Rotation is uniform in ± this.
        translate: Translation is uniform in ± this fraction of the padded size, per axis.
        scale: Range of the scale.
        blur: Range of the standard deviation of the blur in pixels; ``None`` leaves it out.
        noise: Standard deviation of the noise.
        padding: ``"replicate"`` or ``"reflect"``.
        normalize: ``(mean, std)`` of standardized images; ``None`` for images in [0, 1].

    Example:
        >>> augment = BatchAugmentation()
        >>> augment(torch.rand(2, 3, 8, 8), torch.Generator().manual_seed(0)).shape
        torch.Size([2, 3, 8, 8])
    """

    brightness: Range = (0.6, 1.4)
    contrast: Range = (0.7, 1.3)
    saturation: Range = (0.5, 1.5)
    hue: Range = (-0.06, 0.06)
    gamma: Range = (0.7, 1.3)
    degrees: float = 15.0
    translate: float = 1 / 16
    scale: Range = (0.9, 1.1)
    blur: Range | None = (0.001, 0.5)
    noise: float = 0.005
    padding: str = "replicate"
    normalize: Normalize | None = None

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Return an augmented copy of a batch (N, C, H, W).

        Args:
            x: Images.
            generator: Where the parameters and the noise are drawn from, on the CPU.
        """
        images = to_pixels(x, self.normalize).clamp(0, 1)
        images = self._jitter(images, generator)
        images = self._move(images, generator)
        if torch.rand((), generator=generator) < 0.5:
            images = images.flip(-1)
        if self.noise:
            images = images + self.noise * torch.randn(images.shape, generator=generator).to(images)
        return from_pixels(images.clamp(0, 1), self.normalize).to(x.dtype)

    def _jitter(self, images: Tensor, generator: torch.Generator) -> Tensor:
        operations = (adjust_brightness, adjust_contrast, adjust_saturation, adjust_hue, adjust_gamma)
        ranges = (self.brightness, self.contrast, self.saturation, self.hue, self.gamma)
        order = torch.randperm(len(operations), generator=generator).tolist()
        for index in order:
            images = operations[index](images, _uniform(*ranges[index], generator))
        return images

    def _move(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Pad, map, blur and crop; only the pixels that the crop and the blur need are computed."""
        height, width = images.shape[-2:]
        pad = (width // 2, width // 2, height // 2, height // 2)
        padded = F.pad(images, pad, mode=self.padding)
        angle = math.radians(_uniform(-self.degrees, self.degrees, generator))
        shift = [_uniform(-self.translate, self.translate, generator) * size for size in padded.shape[:-3:-1]]  # x, y
        scale = _uniform(*self.scale, generator)
        margin = 0 if self.blur is None else BLUR_RADIUS
        grid = _affine_grid(padded, (height + 2 * margin, width + 2 * margin), angle, shift, scale)
        moved = F.grid_sample(padded, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
        return moved if self.blur is None else gaussian_blur(moved, _uniform(*self.blur, generator))


def gaussian_blur(images: Tensor, sigma: float | Tensor, radius: int = BLUR_RADIUS) -> Tensor:
    """Blur images with a normalized Gaussian kernel; without padding, so ``radius`` pixels are lost on each side.

    Args:
        images: Images (N, C, H, W).
        sigma: Standard deviation in pixels, one for all or one per image (N,).
        radius: Half the size of the kernel.

    Returns:
        Images (N, C, H - 2·radius, W - 2·radius).

    Example:
        >>> gaussian_blur(torch.ones(1, 1, 5, 5), 0.5).round(decimals=4).tolist()
        [[[[1.0]]]]
    """
    offsets = torch.arange(-radius, radius + 1, device=images.device, dtype=images.dtype)
    sigmas = torch.as_tensor(sigma, device=images.device, dtype=images.dtype).expand(len(images))
    kernels = torch.softmax(-offsets.square() / (2 * sigmas[:, None] ** 2), 1)  # softmax is exp over its sum: (N, k)
    kernels = kernels.repeat_interleave(images.shape[1], 0)  # (N·C, k)
    channels = images.reshape(1, -1, *images.shape[2:])  # every channel of every image by itself
    rows = F.conv2d(channels, kernels[:, None, None, :], groups=len(kernels))
    blurred = F.conv2d(rows, kernels[:, None, :, None], groups=len(kernels))
    return blurred.view(*images.shape[:2], *blurred.shape[2:])


def to_pixels(x: Tensor, normalize: Normalize | None) -> Tensor:
    """Return images on the scale of pixels in [0, 1], in float32 at least.

    Raises:
        TTCError: If ``x`` are not images (N, C, H, W).
    """
    if x.ndim != 4:
        raise TTCError(f"an augmentation of images takes (N, C, H, W), got shape {tuple(x.shape)}; use another method")
    images = x.to(torch.promote_types(x.dtype, torch.float32))
    if normalize is None:
        return images
    mean, std = (torch.as_tensor(values).to(images).view(1, -1, 1, 1) for values in normalize)
    return images * std + mean


def from_pixels(images: Tensor, normalize: Normalize | None) -> Tensor:
    """Return images in [0, 1] on the scale of the network's input: the inverse of :func:`to_pixels`."""
    if normalize is None:
        return images
    mean, std = (torch.as_tensor(values).to(images).view(1, -1, 1, 1) for values in normalize)
    return (images - mean) / std


def _uniform(low: float, high: float, generator: torch.Generator) -> float:
    return low + (high - low) * float(torch.rand((), generator=generator))


def _affine_grid(padded: Tensor, size: tuple[int, int], angle: float, shift: Sequence[float], scale: float) -> Tensor:
    """Where each pixel of the central crop comes from: (N, *size, 2) in the coordinates of ``grid_sample``."""
    height, width = padded.shape[-2:]
    rows, columns = (torch.arange(n, device=padded.device, dtype=padded.dtype) - (n - 1) / 2 for n in size)
    y, x = torch.meshgrid(rows - shift[1], columns - shift[0], indexing="ij")
    cosine, sine = math.cos(angle) / scale, math.sin(angle) / scale
    source = torch.stack([(cosine * x + sine * y) * 2 / width, (cosine * y - sine * x) * 2 / height], -1)
    return source.expand(len(padded), -1, -1, -1)
