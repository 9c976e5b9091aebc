"""Linear filters shared by the corruptions, on batches (N, C, H, W)."""

import math
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor


def to_uint8(unit: Tensor) -> Tensor:
    """Clip to [0, 1], multiply by 255 and truncate to uint8: 254.999 becomes 254, as in the published data.

    >>> to_uint8(torch.tensor([-1.0, 0.5, 254.999 / 255, 2.0], dtype=torch.float64)).tolist()
    [0, 127, 254, 255]
    """
    return unit.clamp(0, 1).mul_(255).to(torch.uint8)


def gaussian_weights(sigma: float, truncate: float = 4.0) -> list[float]:
    """Return the sampled, normalised Gaussian from its centre outwards; ``[1.0]`` if σ is too small for a neighbour.

    >>> gaussian_weights(0.05), len(gaussian_weights(0.25)), len(gaussian_weights(0.4))
    ([1.0], 2, 3)
    """
    radius = int(truncate * sigma + 0.5)
    bell = np.exp(-0.5 / sigma**2 * np.arange(-radius, radius + 1) ** 2)
    weights: list[float] = (bell / bell.sum())[radius:].tolist()
    return weights


def filtered_noise_std(sigma: float, truncate: float = 4.0) -> float:
    """Return the standard deviation of unit white noise after the Gaussian on both axes: Σ wᵢ², about 1/(2√π·σ).

    It decreases with σ: where the width of smoothed noise scales with the image, dividing by this keeps its amplitude.

    >>> filtered_noise_std(0.05), round(filtered_noise_std(5.0), 3)
    (1.0, 0.056)
    """
    centre, *half = gaussian_weights(sigma, truncate)
    return centre**2 + 2 * math.fsum(weight**2 for weight in half)


def gaussian_filter(x: Tensor, sigma: float) -> Tensor:
    """Apply the separable Gaussian over the last two axes, edges replicated: float64 in and out.

    Outer taps are added first, in pairs, which is the order of SciPy: truncation then sees the same rounding.
    """
    weights = gaussian_weights(sigma)
    radius = len(weights) - 1
    if radius == 0:
        return x
    for axis in (2, 3):
        padding = (0, 0, radius, radius) if axis == 2 else (radius, radius, 0, 0)
        padded = F.pad(x, padding, mode="replicate")
        size = x.shape[axis]
        x = padded.narrow(axis, radius, size) * weights[0]
        for i in range(radius, 0, -1):
            pair = padded.narrow(axis, radius - i, size) + padded.narrow(axis, radius + i, size)
            x += pair.mul_(weights[i])
    return x


def box_filter(x: Tensor) -> Tensor:
    """Apply the 3 × 3 mean, borders mirrored without repeating the edge pixel."""
    return F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), 3, stride=1)


def correlate(x: Tensor, kernel: Tensor) -> Tensor:
    """Correlate each channel with an odd kernel, borders mirrored without repeating the edge pixel.

    Computed in float64 by FFT: the cost does not grow with the kernel.
    """
    rows, columns = kernel.shape[0] // 2, kernel.shape[1] // 2
    padded = F.pad(x.double(), (columns, columns, rows, rows), mode="reflect")
    size = (_smooth_length(padded.shape[2]), _smooth_length(padded.shape[3]))
    spectrum = torch.fft.rfft2(padded, s=size)
    spectrum *= torch.fft.rfft2(kernel.double(), s=size).conj()
    result: Tensor = torch.fft.irfft2(spectrum, s=size)
    return result[:, :, : x.shape[2], : x.shape[3]]


def _smooth_length(length: int) -> int:
    """Return the next even length with a fast FFT: no prime factor above 5."""
    length += length % 2
    while True:
        rest = length
        for factor in (2, 3, 5):
            while rest % factor == 0:
                rest //= factor
        if rest == 1:
            return length
        length += 2


def motion_filter(x: Tensor, radius: float, sigma: float, angles: Tensor) -> Tensor:
    """Apply one-sided motion blur to uint8 images, each along its own angle in degrees, rounded to uint8.

    out(x, y) = Σᵢ kᵢ·in(x + ⌈i·cos − ½⌉, y + ⌈i·sin − ½⌉) with kᵢ ∝ exp(−i²/2σ²), i = 0 … 2⌈radius⌉, edges replicated.
    """
    taps = 2 * math.ceil(radius) + 1
    weights = [math.exp(-0.5 * (i / sigma) ** 2) for i in range(taps)]
    weights = [weight / math.fsum(weights) for weight in weights]
    reach = max(i for i in range(taps) if weights[i] > 1e-9)  # further taps contribute less than 1e-6 grey levels
    padded = F.pad(x.float(), (reach,) * 4, mode="replicate")
    result = torch.zeros(x.shape, device=x.device)
    window, steps = x.shape[1:], padded.stride()[1:]
    for image, out, angle in zip(padded, result, angles.tolist(), strict=True):
        cosine, sine = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        origin = image.storage_offset() + reach * steps[1] + reach
        for i in range(reach + 1):
            start = origin + math.ceil(i * sine - 0.5) * steps[1] + math.ceil(i * cosine - 0.5)
            out.add_(image.as_strided(window, steps, start), alpha=weights[i])  # faster than slicing
    return result.add_(0.5).clamp_(0, 255).to(torch.uint8)


def clipped_zoom(x: Tensor, factor: float, spare: tuple[Tensor, Tensor, Tensor] | None = None) -> Tensor:
    """Enlarge (H, W, M) by ``factor`` ≥ 1 and crop the centre to the old size, linear between pixel centres.

    ``spare`` are buffers like ``x``, one of which is returned: allocating memory costs more than the arithmetic.
    """
    below, across, result = spare or (torch.empty_like(x), torch.empty_like(x), torch.empty_like(x))
    for axis, source, above in ((0, x, across), (1, across, result)):
        low, fraction = _zoom_positions(x.shape[axis], factor)
        weight = torch.tensor(fraction, dtype=x.dtype, device=x.device)[(..., None) if axis else (..., None, None)]
        index = torch.tensor(low, device=x.device)
        torch.index_select(source, axis, index, out=below)
        torch.index_select(source, axis, (index + 1).clamp_(max=x.shape[axis] - 1), out=above)
        above.sub_(below).mul_(weight).add_(below)
    return result


@lru_cache(maxsize=256)
def _zoom_positions(side: int, factor: float) -> tuple[list[int], list[float]]:
    """Return where each output pixel of a clipped zoom samples on one axis: the pixel below and the fraction beyond."""
    crop = math.ceil(side / factor)
    enlarged = round(crop * factor)
    start, cut = (side - crop) // 2, (enlarged - side) // 2
    step = (crop - 1) / (enlarged - 1)
    positions = [min((cut + j) * step, crop - 1.0) for j in range(side)]
    return [start + int(p) for p in positions], [p - int(p) for p in positions]
