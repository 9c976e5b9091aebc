"""Noise, drawn independently per element. Batches are uint8 (N, 3, H, W)."""

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ttc.corruptions.random_streams import RandomStreams


def gaussian_noise(x: Tensor, streams: RandomStreams, scale: float, deviation: float) -> Tensor:
    """Add noise per element: x + N(0, σ²)."""
    noise = streams.normal(*x.shape[1:]).mul_(255 * deviation)
    return noise.add_(x).clamp_(0, 255).to(torch.uint8)


def speckle_noise(x: Tensor, streams: RandomStreams, scale: float, deviation: float) -> Tensor:
    """Add noise proportional to the intensity: x + x·N(0, σ²)."""
    noise = streams.normal(*x.shape[1:]).mul_(deviation).mul_(x)
    return noise.add_(x).clamp_(0, 255).to(torch.uint8)


def impulse_noise(x: Tensor, streams: RandomStreams, scale: float, amount: float) -> Tensor:
    """Set a fraction ``amount`` of the elements to 0 or 255 with equal probability, independently per channel."""
    draw = streams.uniform(*x.shape[1:], dtype=torch.float32)
    return x.masked_fill(draw < amount, 255).masked_fill_(draw < amount / 2, 0)


def shot_noise(x: Tensor, streams: RandomStreams, scale: float, photons: float) -> Tensor:
    """Replace each element by Poisson(c·x) / c, where white is ``photons`` counts.

    Each of the 256 intensities has an alias table (Walker 1977, Vose 1991): the integer part of a uniform number
    selects a column, the fraction selects the first or second count of that column.
    """
    threshold, alias, grey = (torch.from_numpy(table).to(x.device) for table in _poisson_tables(photons))
    columns = threshold.shape[1]
    draw = streams.uniform(*x.shape[1:]).mul_(columns)
    column = draw.long()
    cell = x.long().mul_(columns).add_(column)
    first = draw.sub_(column) < threshold.view(-1).take(cell)
    return grey.take(torch.where(first, column, alias.view(-1).take(cell)))


@lru_cache(maxsize=16)
def _poisson_tables(photons: float) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.uint8]]:
    """Make alias tables of Poisson(photons·i/255), i = 0 … 255: thresholds, aliases (256, K), grey per count."""
    count = np.arange(int(photons + 12 * photons**0.5 + 20))  # the tail beyond is below 1e-15
    rate = photons * np.arange(256)[:, None] / 255
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(count[1:]))])
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = count * np.log(rate) - rate - log_factorial
    probability = np.exp(np.where(rate > 0, logs, np.where(count == 0, 0.0, -np.inf)))
    probability *= len(count) / probability.sum(1, keepdims=True)  # a full column is 1
    alias = np.tile(count, (256, 1))
    for row, names in zip(probability, alias, strict=True):
        small, large = list(np.flatnonzero(row < 1)), list(np.flatnonzero(row >= 1))
        while small and large:
            short, long = small.pop(), large[-1]
            names[short] = long
            row[long] -= 1 - row[short]
            if row[long] < 1:
                small.append(large.pop())
        row[small + large] = 1.0  # rounding errors
    grey = (np.clip(count / photons, 0, 1) * 255).astype(np.uint8)
    return probability, alias, grey
