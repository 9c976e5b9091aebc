"""Outliers among the batches of a stream, told from pixels alone.

Where features or images are stored, :class:`OutlierCheck` tells which batch to drop; where everything that a batch
taught would have to be undone, which batch not to learn from before the next confirms it.
"""

from typing import Any

import torch
from torch import Tensor

from ttc.core.part import Part
from ttc.core.processes import Processes

Pair = tuple[Tensor, Tensor]
"""A mean and a variance per channel, (C,) each."""

MARGIN = 1 / 2  # how much nearer an alternative must be: batches of one stream differ by chance
FAR = 0.4  # distance of pixels from which a batch can be an outlier; clean batches of 8 images stay below 0.34
FIRST_FAR = 0.7  # the same of the second batch from the first; clean images and severity 5 have 0.64, but for contrast
VERY_FAR = 0.8  # distance from which one batch alone is not learned from; severity 5 has 0.62 at most, but for contrast
FEWEST = 8  # images in a batch that is compared: single images differ by nature
PIXEL_EPS = 1e-5  # about the square of a grey level


def channel_distances(one: Pair, other: Pair, eps: float) -> Tensor:
    """Compute the distance of two statistics in standard deviations, per channel: (C,).

    .. math:: \\sqrt{\\frac{2\\,(\\mu_1 - \\mu_2)^2}{\\sigma_1^2 + \\sigma_2^2} + \\log^2\\frac{\\sigma_1}{\\sigma_2}}

    Args:
        one: A mean and a variance.
        other: Another mean and variance.
        eps: What the layer adds to variances.
    """
    first, second = (variance.double().clamp(min=0) + eps for _, variance in (one, other))
    apart = (one[0].double() - other[0].double()).square() * 2 / (first + second)
    return (apart + ((first / second).log() / 2).square()).sqrt()


def is_blank(x: Tensor) -> bool:
    """Tell whether no image of a batch (N, C, ...) has any content: each channel has one value; vectors always have."""
    if x.ndim < 3:
        return False
    pixels = x.detach().flatten(2)
    return all(bool((part == part[:, :, :1]).all()) for part in (pixels[:1], pixels))  # one image mostly tells


class OutlierCheck(Part):
    """Tells from pixels whether the last batch was an outlier: the next one resembles those before it instead.

    A batch is described by mean and variance of its pixels and of their differences to the right neighbour, per
    channel. The last batch is contradicted if the next one is at least :data:`FAR` from it, and twice as near to the
    batch before. Classes hardly change these values, so streams sorted by class contradict nothing.

    The first batch has none before it. If the second is far from it (:data:`FIRST_FAR`), either can be the outlier, and
    the third batch tells which.

    Attributes:
        last: The statistics of the last batch (2, 2C); None if it was smaller than :data:`FEWEST`.
        before: Those of the batch before, outliers left out.
        batches: How many batches were included.
        waiting: The images of the second batch while an adapter has not learned from it, as it is far from the first.
    """

    state_attributes = ("last", "before", "batches", "waiting")

    def __init__(self) -> None:
        self.last: Tensor | None = None
        self.before: Tensor | None = None
        self.batches = 0
        self.waiting: Tensor | None = None

    def is_contradicted_by(self, x: Tensor) -> bool:
        """Tell whether a new batch (N, C, ...) shows that the last one was an outlier; nothing changes."""
        return len(x) >= FEWEST and self._contradicts(_pixel_statistics(x))

    def _contradicts(self, new: Tensor) -> bool:
        if self.last is None or self.before is None or self.last.shape != new.shape:
            return False
        to_last, to_before = (_pixel_distance(new, old) for old in (self.last, self.before))
        return to_last > FAR and to_before < MARGIN * to_last

    def is_second_and_far(self, x: Tensor) -> bool:
        """Tell whether a new batch (N, C, ...) is the second one, and far from the first: one of them is an outlier.

        Its halves must be twice as near to each other: small batches of one stream can differ as much by chance.
        """
        if self.batches != 1 or len(x) < FEWEST or self.last is None or self.last.shape[1] != 2 * x.shape[1]:
            return False
        apart = _pixel_distance(_pixel_statistics(x), self.last)
        one, other = (_pixel_statistics(half) for half in x.tensor_split(2))
        return apart > FIRST_FAR and _pixel_distance(one, other) < MARGIN * apart

    def shows_first_as_outlier(self, x: Tensor) -> bool:
        """Tell whether a new batch (N, C, ...) is the third one, and resembles the second but not the first."""
        if self.batches != 2 or len(x) < FEWEST or self.last is None or self.before is None:
            return False
        new = _pixel_statistics(x)
        if not self.last.shape == self.before.shape == new.shape:
            return False
        if _pixel_distance(self.last, self.before) <= FIRST_FAR:
            return False
        to_first = _pixel_distance(new, self.before)
        return to_first > FAR and _pixel_distance(new, self.last) < MARGIN * to_first

    def is_unconfirmed(self, x: Tensor) -> bool:
        """Tell whether a new batch (N, C, ...) is so far from the last two that another like it should come first."""
        known = [batch for batch in (self.last, self.before) if batch is not None and batch.shape[1] == 2 * x.shape[1]]
        if len(x) < FEWEST or self.last is None or not known:
            return False
        new = _pixel_statistics(x)
        return min(_pixel_distance(new, batch) for batch in known) > VERY_FAR

    def include(self, x: Tensor) -> None:
        """Include a batch (N, C, ...) that was stored, or was not learned from."""
        new = _pixel_statistics(x) if len(x) >= FEWEST else None
        if self.last is not None and not (new is not None and self._contradicts(new)):
            self.before = self.last if self.last.shape[1] == 2 * x.shape[1] else None
        self.last = new
        self.batches += 1

    def share_stream_(self, processes: Processes) -> None:
        """Change nothing: every process shows it the whole batch."""

    def check_state(self, state: dict[str, Any]) -> None:
        """Check that there is a mean and a variance per channel, and that images that wait are of such channels."""
        known = [state[name] for name in ("last", "before") if state[name] is not None]
        if not all(isinstance(value, Tensor) and value.ndim == 2 and len(value) == 2 for value in known):
            raise ValueError("statistics of a batch are a mean and a variance per channel")
        waiting, last = state["waiting"], state["last"]
        if waiting is None:
            return
        fits = isinstance(waiting, Tensor) and waiting.is_floating_point() and waiting.ndim >= 2 and last is not None
        if not fits or len(waiting) < FEWEST or 2 * waiting.shape[1] != last.shape[1]:
            raise ValueError("the images that wait to be learned from are not those of the last batch")


@torch.no_grad()
def _pixel_statistics(x: Tensor) -> Tensor:
    """Return mean and variance (2, 2C) of the values of each channel and of their differences along the last axis."""
    moments = [channel_moments(part) for part in (x.float(), x.float().diff(dim=-1))]
    mean, variance = (torch.cat(parts) for parts in zip(*moments, strict=True))
    return torch.stack([mean, variance]).nan_to_num()


def channel_moments(x: Tensor) -> Pair:
    """Return the mean and the variance of each channel; torch's own variance is several times slower on a CPU."""
    axes = [0, *range(2, x.ndim)]
    mean = x.mean(axes, keepdim=True)
    return mean.flatten(), (x - mean).square_().mean(axes)


def _pixel_distance(one: Tensor, other: Tensor) -> float:
    return float(channel_distances((one[0], one[1]), (other[0], other[1]), PIXEL_EPS).mean())
