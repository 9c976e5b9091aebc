"""The corruptions by name, their two severity tables, and the scaling rule for other image sizes.

A table contains the published parameters for images of its reference side (32 or 224 pixels). At another side every
length in pixels (radii, widths, displacements, flake and texture sizes) is multiplied by ``shorter side / reference
side``, so that an image is corrupted alike at every resolution; amplitudes, probabilities, counts and JPEG qualities do
not change. Fractions of the side (zoom factors, pixelate) need no scaling, and fog is drawn on the next power of two of
the longer side. Noise that is smoothed before use (elastic_transform, spatter) keeps its standard deviation after
smoothing. Below 32 pixels the lengths of the CIFAR table are not scaled: a radius of one pixel cannot shrink.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

TableName: TypeAlias = Literal["cifar", "imagenet"]
Parameters: TypeAlias = tuple[float, ...]

GROUPS: dict[str, tuple[str, ...]] = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "weather": ("snow", "frost", "fog", "brightness"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
    "extra": ("speckle_noise", "gaussian_blur", "spatter", "saturate"),
}
"""The corruptions of each group: noise, blur, weather, digital and extra."""
CORRUPTIONS: tuple[str, ...] = tuple(name for group, names in GROUPS.items() if group != "extra" for name in names)
"""The names of the fifteen common corruptions of Hendrycks & Dietterich (2019), in the order of their tables."""
EXTRA_CORRUPTIONS: tuple[str, ...] = GROUPS["extra"]
"""The names of the four extra corruptions, published for validation."""
SEVERITIES = (1, 2, 3, 4, 5)
"""The severities, from mild to strong."""


@dataclass(frozen=True)
class SeverityTable:
    """Published parameters: per corruption one tuple per severity, with lengths in pixels of an image of ``side``."""

    side: int
    parameters: Mapping[str, tuple[Parameters, ...]]


def nearest_table(height: int, width: int) -> TableName:
    """Choose the severity table whose reference side (32 or 224) is nearer in ratio to the shorter side of an image.

    The threshold is √(32·224) ≈ 84.7 pixels.

    Args:
        height: The height of the image in pixels.
        width: The width of the image in pixels.

    Returns:
        ``"cifar"`` or ``"imagenet"``.

    Example:
        >>> [nearest_table(side, side) for side in (32, 64, 84, 85, 96, 224)]
        ['cifar', 'cifar', 'cifar', 'imagenet', 'imagenet', 'imagenet']
    """
    border = math.sqrt(TABLES["cifar"].side * TABLES["imagenet"].side)
    return "cifar" if min(height, width) < border else "imagenet"


def length_scale(table: TableName, height: int, width: int) -> float:
    """Return the factor by which the lengths of a table are multiplied for an image of this size.

    >>> length_scale("cifar", 64, 64), length_scale("imagenet", 112, 500), length_scale("cifar", 28, 28)
    (2.0, 0.5, 1.0)
    """
    scale = min(height, width) / TABLES[table].side
    return max(1.0, scale) if table == "cifar" else scale


def _each(*values: float) -> tuple[Parameters, ...]:
    return tuple((value,) for value in values)


_CIFAR = SeverityTable(
    side=32,
    parameters={
        "gaussian_noise": _each(0.04, 0.06, 0.08, 0.09, 0.10),  # deviation
        "shot_noise": _each(500, 250, 100, 75, 50),  # photons for white
        "impulse_noise": _each(0.01, 0.02, 0.03, 0.05, 0.07),  # fraction of the elements
        "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),  # radius, edge softness
        "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),  # σ, reach, rounds
        "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),  # radius, σ
        "zoom_blur": ((0.01, 7), (0.01, 12), (0.01, 16), (0.01, 21), (0.01, 26)),  # step, count of factors
        "snow": (  # mean, deviation, zoom, threshold, blur radius, blur σ, weight of the image
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        # weight of the image, weight of the frost, size of the texture
        "frost": ((1, 0.2, 0.2), (1, 0.3, 0.2), (0.9, 0.4, 0.2), (0.85, 0.4, 0.2), (0.75, 0.45, 0.2)),
        "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),  # strength, decay
        "brightness": _each(0.05, 0.1, 0.15, 0.2, 0.3),
        "contrast": _each(0.75, 0.5, 0.4, 0.3, 0.15),
        "elastic_transform": tuple(  # displacement, smoothness, affine jitter: fractions of the side
            (32 * a, 32 * b, 32 * c)
            for a, b, c in ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03))
        ),
        "pixelate": _each(0.95, 0.9, 0.85, 0.75, 0.65),  # fraction of the side
        "jpeg_compression": _each(80, 65, 58, 50, 40),  # quality
        "speckle_noise": _each(0.06, 0.1, 0.12, 0.16, 0.2),
        "gaussian_blur": _each(0.4, 0.6, 0.7, 0.8, 1),
        "spatter": (  # mean, deviation, blur σ, threshold, water's gain or mud's σ, is mud
            (0.62, 0.1, 0.7, 0.7, 0.5, 0),
            (0.65, 0.1, 0.8, 0.7, 0.5, 0),
            (0.65, 0.3, 1, 0.69, 0.5, 0),
            (0.65, 0.1, 0.7, 0.69, 0.6, 1),
            (0.65, 0.1, 0.5, 0.68, 0.6, 1),
        ),
        "saturate": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),  # factor, offset
    },
)

_IMAGENET = SeverityTable(
    side=224,
    parameters={
        "gaussian_noise": _each(0.08, 0.12, 0.18, 0.26, 0.38),
        "shot_noise": _each(60, 25, 12, 5, 3),
        "impulse_noise": _each(0.03, 0.06, 0.09, 0.17, 0.27),
        "defocus_blur": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
        "glass_blur": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
        "motion_blur": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
        "zoom_blur": ((0.01, 12), (0.01, 16), (0.02, 11), (0.02, 13), (0.03, 11)),
        "snow": (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
        "frost": ((1, 0.4, 1), (0.8, 0.6, 1), (0.7, 0.7, 1), (0.65, 0.7, 1), (0.6, 0.75, 1)),
        "fog": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
        "brightness": _each(0.1, 0.2, 0.3, 0.4, 0.5),
        "contrast": _each(0.4, 0.3, 0.2, 0.1, 0.05),
        "elastic_transform": tuple(  # the published base is 244, not 224
            (244 * a, 244 * b, 244 * c)
            for a, b, c in ((2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02))
        ),
        "pixelate": _each(0.6, 0.5, 0.4, 0.3, 0.25),
        "jpeg_compression": _each(25, 18, 15, 10, 7),
        "speckle_noise": _each(0.15, 0.2, 0.35, 0.45, 0.6),
        "gaussian_blur": _each(1, 2, 3, 4, 6),
        "spatter": (
            (0.65, 0.3, 4, 0.69, 0.6, 0),
            (0.65, 0.3, 3, 0.68, 0.6, 0),
            (0.65, 0.3, 2, 0.68, 0.5, 0),
            (0.65, 0.3, 1, 0.65, 1.5, 1),
            (0.67, 0.4, 1, 0.65, 1.5, 1),
        ),
        "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
    },
)

TABLES: dict[TableName, SeverityTable] = {"cifar": _CIFAR, "imagenet": _IMAGENET}
"""The published severity tables: parameters for 32-pixel images (``cifar``) and 224-pixel images (``imagenet``)."""
