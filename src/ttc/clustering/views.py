"""The views of an image that the A-step predicts: the paper's augmentation study.

A view maps a batch (N, C, H, W) to a batch of the same shape. The random ones draw from a seed and a step, so they
replay after a reset, and copy and pickle like any value.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ttc.core.draws import seeded_generator
from ttc.core.part import Part, share_parts_
from ttc.core.processes import Processes
from ttc.errors import TTCError

View = Callable[[Tensor], Tensor]


def identity(x: Tensor) -> Tensor:
    """Return the images themselves."""
    return x


def horizontal_flip(x: Tensor) -> Tensor:
    """Mirror the images left to right: the paper's choice of aug(x).

    >>> horizontal_flip(torch.arange(3.0).view(1, 1, 1, 3)).flatten().tolist()
    [2.0, 1.0, 0.0]
    """
    return _images(x).flip(-1)


def vertical_flip(x: Tensor) -> Tensor:
    """Turn the images upside down.

    >>> vertical_flip(torch.arange(3.0).view(1, 1, 3, 1)).flatten().tolist()
    [2.0, 1.0, 0.0]
    """
    return _images(x).flip(-2)


@dataclass
class RandomView(Part):
    """A view that draws from its seed and step: the same for a repeated call, different once the step advances.

    The cycle advances the step after each accepted batch, so a rejected batch leaves no trace.
    """

    state_attributes: ClassVar[tuple[str, ...]] = ("step",)
    seed: int = field(default=0, kw_only=True)
    step: int = field(default_factory=int, init=False)  # set on the instance, as a reset does

    def __call__(self, x: Tensor) -> Tensor:
        raise NotImplementedError("a random view defines what it does to a batch")

    def draws(self) -> torch.Generator:
        """Return the generator of this step; on the CPU, so that every device sees the same draws."""
        return seeded_generator(self.seed, self.step)

    def share_stream_(self, processes: Processes) -> None:
        """Share a stream: the adapter shows it the whole batch, so that draws are equal."""
        share_parts_(self, processes)


@dataclass
class GaussianNoise(RandomView):
    """Adds N(0, std²) to every value.

    ``std`` is in pixel units of images in [0, 1]; for images that were standardized, give ``standardized=(mean, std)``.
    """

    std: float = 0.1
    standardized: tuple[Sequence[float], Sequence[float]] | None = None

    def __call__(self, x: Tensor) -> Tensor:
        noise = torch.randn(x.shape, generator=self.draws()).to(x) * self.std
        return x + in_input_units(noise, self.standardized)


@dataclass
class RandomRotation(RandomView):
    """Turns each image by its own angle, uniform in ±degrees, bilinear, black outside."""

    degrees: float = 30.0

    def __call__(self, x: Tensor) -> Tensor:
        angle = (torch.rand(len(x), generator=self.draws()) * 2 - 1) * math.radians(self.degrees)
        height, width = _images(x).shape[-2:]
        cosine, sine, zero = angle.cos(), angle.sin(), torch.zeros(len(x))
        rows = [cosine, -sine * height / width, zero, sine * width / height, cosine, zero]
        return _resampled(x, torch.stack(rows, 1).view(-1, 2, 3))


@dataclass
class RandomResizedCrop(RandomView):
    """Cuts a window of random area and aspect ratio out of each image and enlarges it to full size, bilinear."""

    scale: tuple[float, float] = (0.5, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __call__(self, x: Tensor) -> Tensor:
        return random_resized_crop(x, self.draws(), scale=self.scale, ratio=self.ratio)


def random_resized_crop(
    x: Tensor, generator: torch.Generator, *, scale: tuple[float, float], ratio: tuple[float, float] = (3 / 4, 4 / 3)
) -> Tensor:
    """Cut a window of random area and aspect ratio out of each image and enlarge it to full size, bilinear.

    Args:
        x: Images (N, C, H, W).
        generator: Where the windows are drawn from, on the CPU.
        scale: Range of the area, as a fraction of the image's.
        ratio: Range of width over height.

    Returns:
        Images of the same shape.
    """
    area = torch.rand(len(_images(x)), generator=generator) * (scale[1] - scale[0]) + scale[0]
    low, high = map(math.log, ratio)
    aspect = (torch.rand(len(x), generator=generator) * (high - low) + low).exp()
    width, height = (area * aspect).sqrt().clamp(max=1), (area / aspect).sqrt().clamp(max=1)
    shift = (torch.rand(2, len(x), generator=generator) * 2 - 1) * (1 - torch.stack([width, height]))
    zero = torch.zeros(len(x))
    return _resampled(x, torch.stack([width, zero, shift[0], zero, height, shift[1]], 1).view(-1, 2, 3))


def random_flip(x: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror each image left to right with probability ½, drawn from ``generator``."""
    flipped = torch.rand(len(_images(x)), generator=generator) < 0.5
    return torch.where(flipped.to(x.device).view(-1, 1, 1, 1), x.flip(-1), x)


@dataclass
class PatchShuffle(RandomView):
    """Cuts each image into a grid of patches and puts them back in a random order of its own.

    It destroys the shape of objects and keeps their texture (DeYO). Sides that are no multiple of ``grid`` are resized
    to one, bilinear, and back.

    Args:
        grid: The patches per side.
    """

    grid: int = 4

    def __post_init__(self) -> None:
        if self.grid < 1:
            raise TTCError(f"the patches per side are a positive number, got {self.grid}")

    def __call__(self, x: Tensor) -> Tensor:
        height, width = _images(x).shape[-2:]
        patch = max(1, height // self.grid), max(1, width // self.grid)
        size = patch[0] * self.grid, patch[1] * self.grid
        patches = F.unfold(_resize(x, size), patch, stride=patch)  # (N, C·h·w, grid²)
        order = torch.rand(len(x), self.grid**2, generator=self.draws()).argsort(1).to(x.device)
        patches = patches.gather(2, order[:, None].expand(-1, patches.shape[1], -1))
        return _resize(F.fold(patches, size, patch, stride=patch), (height, width))


def in_input_units(pixels: Tensor, standardized: tuple[Sequence[float], Sequence[float]] | None) -> Tensor:
    """Convert a difference of pixels (N, C, H, W) to the scale of inputs standardized with ``(mean, std)``."""
    if standardized is None:
        return pixels
    std = torch.as_tensor(standardized[1], dtype=pixels.dtype, device=pixels.device)
    return pixels / std.view(1, -1, 1, 1)


def _images(x: Tensor) -> Tensor:
    if x.ndim != 4:
        raise TTCError(f"a view of images takes (N, C, H, W), got shape {tuple(x.shape)}; choose another method")
    return x


def _resize(x: Tensor, size: tuple[int, int]) -> Tensor:
    if x.shape[-2:] == size:
        return x
    precise = x.to(torch.promote_types(x.dtype, torch.float32))
    return F.interpolate(precise, size, mode="bilinear", align_corners=False, antialias=True).to(x.dtype)


def _resampled(x: Tensor, theta: Tensor) -> Tensor:
    grid = F.affine_grid(theta.to(x), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
