"""A policy over pairs of image operations that learns to make hard copies of images (TeSLA)."""

import itertools

import torch
from torch import Tensor, nn

from ttc.clustering.batch_augmentation import Normalize, from_pixels, to_pixels
from ttc.clustering.image_operations import OPERATIONS

PAIRS = tuple(itertools.combinations(range(len(OPERATIONS)), 2))  # 91 unordered pairs, applied in this order


class AugmentationPolicy(nn.Module):
    """The probability of each pair of operations, and the magnitudes of both.

    A magnitude is low + sigmoid(b) · (high - low) of its operation.

    Args:
        generator: Where the initial magnitudes are drawn from: b ~ N(0, 1); all pairs are equally probable at first.
        normalize: ``(mean, std)`` of standardized images; ``None`` for images in [0, 1].
    """

    def __init__(self, generator: torch.Generator, normalize: Normalize | None = None) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(len(PAIRS)))  # a
        self.magnitudes = nn.Parameter(torch.randn(len(PAIRS), 2, generator=generator))  # b
        self.normalize = normalize

    def forward(self, x: Tensor, pairs: Tensor, signs: Tensor) -> Tensor:
        """Apply to each image its pair of operations, with gradients to the magnitudes.

        Args:
            x: Images (N, C, H, W).
            pairs: The index of a pair per image (N,).
            signs: The direction, 1 or -1, of each of the two operations (N, 2).

        Returns:
            Images like ``x``.
        """
        images = to_pixels(x, self.normalize).clamp(0, 1)
        chosen = torch.tensor(PAIRS, device=x.device)[pairs]  # (N, 2)
        strength = self.magnitudes[pairs].sigmoid().to(images)
        for place in range(2):
            images = _apply_per_image(images, chosen[:, place], strength[:, place], signs[:, place].to(images))
        return from_pixels(images.clamp(0, 1), self.normalize).to(x.dtype)

    def sample(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw pairs (N,) by their probability, and directions (N, 2)."""
        probability = self.logits.detach().softmax(0).cpu()
        pairs = torch.multinomial(probability, count, replacement=True, generator=generator)
        return pairs.to(self.logits.device), random_signs(count, generator).to(self.logits.device)


def random_signs(count: int, generator: torch.Generator) -> Tensor:
    """Draw the directions, 1 or -1, of two operations per image: (N, 2)."""
    return torch.randint(2, (count, 2), generator=generator) * 2 - 1


def _apply_per_image(images: Tensor, chosen: Tensor, strength: Tensor, signs: Tensor) -> Tensor:
    """Apply operation ``chosen`` (N,) to each image: one call per operation that occurs."""
    order, parts = [], []
    for index, operation in enumerate(OPERATIONS.values()):
        rows = (chosen == index).nonzero().squeeze(1)
        if len(rows):
            magnitude = operation.low + strength[rows] * (operation.high - operation.low)
            parts.append(operation.apply(images[rows], magnitude * signs[rows] if operation.signed else magnitude))
            order.append(rows)
    return torch.cat(parts)[torch.cat(order).argsort()]
