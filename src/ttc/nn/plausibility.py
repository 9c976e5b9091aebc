"""How plausible a batch is to a layer that stores statistics: what is absurd is rejected before it is stored."""

import math
from typing import TYPE_CHECKING

from torch import Tensor

from ttc.errors import TTCError

if TYPE_CHECKING:
    from ttc.nn.normalization import StatisticsNorm

PLAUSIBLE = 6.0  # the energy up to which a batch counts fully; single images at severity 5 stay below 4.7
ABSURD = 1e4  # the energy beyond which a batch is rejected: a hundred source standard deviations
ABSURD_WINDOW = 25.0  # the same where the images themselves are stored, so that their weight cannot be reduced


def source_energy(layer: "StatisticsNorm", mean: Tensor, variance: Tensor) -> float:
    """Compute the mean square of a layer's input in source standard deviations, of the median channel.

    .. math:: \\mathrm{median}_c \\; \\frac{(\\mu_c - \\mu_c^s)^2 + \\sigma_c^2}{(\\sigma_c^s)^2 + \\epsilon}

    It is 1 on source data and grows with the square of the range of the images; the median ignores channels that were
    constant on the source data.

    Args:
        layer: A layer that stores source statistics.
        mean: The mean per channel of the batch, (C,).
        variance: Its variance per channel, (C,).

    Returns:
        The energy; NaN if a value is not finite.
    """
    scale = layer.source_variance.double().clamp(min=0) + layer.eps  # a negative variance is a fault of the model
    energy = ((mean.double() - layer.source_mean.double()).square() + variance.double()) / scale
    return float(energy.median() + 0 * energy.sum())  # 0 * inf is NaN


def reject_absurd(layer: "StatisticsNorm", mean: Tensor, variance: Tensor, limit: float = ABSURD) -> float:
    """Return the energy of a batch, or reject the batch if it exceeds ``limit`` or is not finite.

    Raises:
        TTCError: If the batch would ruin what is stored.
    """
    energy = source_energy(layer, mean, variance)
    if not energy <= limit:
        distance = f"{energy**0.5:.3g}" if energy < math.inf else "infinitely many"
        raise TTCError(
            f"the batch lies {distance} source standard deviations from what the model was trained on, beyond "
            f"{limit**0.5:g} it would ruin the statistics of the stream; check the range of the images"
        )
    return energy


def update_weight(layer: "StatisticsNorm", mean: Tensor, variance: Tensor) -> float:
    """Return how much a batch counts in running statistics: 1 if plausible, less beyond, rejected when absurd.

    .. math:: \\min(1, 6 / \\text{energy})^2

    So the more extreme a batch is, the less it moves what is stored.

    Raises:
        TTCError: If the batch is absurd.
    """
    return min(1.0, PLAUSIBLE / max(reject_absurd(layer, mean, variance), PLAUSIBLE)) ** 2
