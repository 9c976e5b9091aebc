"""What no single batch can ruin: statistics, features or images of a stream, in which an outlier is undone.

Beside its statistics, which include the last batch, a layer stores two alternatives: the statistics with the move of
the last batch bounded, and, if the last batch contradicted the one before, the statistics with that one instead. The
next batch decides which of the three to continue from, by its distance to what each of them claims the stream to be.
Where batches confirm each other, the first is always chosen, and the statistics are plain running ones.

The first batch of a stream has none before it. If the second is far from it, either can be the outlier: the second
continues from the bounded statistics, and those with the first batch become an alternative for the third.

Where features or images are stored instead, :class:`ttc.core.outlier_check.OutlierCheck` tells which batch to drop.
"""

import torch
from torch import Tensor

from ttc.core.outlier_check import FEWEST, MARGIN, Pair, channel_distances, channel_moments

MAX_MOVE = 0.003  # of a channel by a batch that the next ones contradict, in standard deviations
SAME = 1e-3  # batches nearer than this are one batch shown twice: it does not confirm itself


def initial_alternatives(mean: Tensor, variance: Tensor) -> Tensor:
    """Return the alternatives of a layer that has seen no batch: four pairs, (..., 8, C)."""
    return torch.stack([mean, variance] * 4, -2)


def distance(one: Pair, other: Pair, eps: float) -> Tensor:
    """Compute the mean distance over channels, each counted as one standard deviation at most."""
    return channel_distances(one, other, eps).clamp(max=1).mean()


def bounded_move(before: Pair, after: Pair, eps: float) -> Pair:
    """Return ``after``, but in each channel at most :data:`MAX_MOVE` away from ``before``."""
    scale = (MAX_MOVE / channel_distances(before, after, eps).clamp(min=1e-30)).clamp(max=1).to(before[0])
    start, end = (variance.clamp(min=0) + eps for variance in (before[1], after[1]))
    mean = torch.where(scale < 1, before[0].lerp(after[0], scale), after[0])
    return mean, torch.where(scale < 1, start * (end / start) ** scale - eps, after[1])


def is_second_and_far(x: Tensor, alternatives: Tensor, source: Pair, eps: float, limit: float) -> bool:
    """Tell whether a batch is the second one, and far from the first: one of them is an outlier.

    Its halves must be twice as near to each other: small batches of one stream can differ as much by chance.

    Args:
        x: The batch (N, C, ...).
        alternatives: Those of the layer, (8, C): the batch before the last is the source until two have come.
        source: The statistics that the layer started from.
        eps: The layer's eps.
        limit: The distance from which it is far.
    """
    last, earlier = alternatives[2:4], alternatives[6:]
    if len(x) < FEWEST or torch.equal(last, earlier) or not torch.equal(earlier, torch.stack(source)):
        return False
    whole, one, other = (channel_moments(part.double()) for part in (x, *x.tensor_split(2)))
    apart = distance(whole, (last[0], last[1]), eps)
    return bool((apart > limit) & (distance(one, other, eps) < MARGIN * apart))


class Choice:
    """The statistics that a batch updates, chosen among the current ones and the alternatives.

    Args:
        current: The statistics of the layer.
        alternatives: Its alternatives, (8, C): the bounded statistics; the last batch; the statistics without the last
            batch but with the one before; the one before.
        batch: The statistics of the new batch.
        eps: The layer's eps.
        leaves_first: Whether the last batch was the first one, and this one is far from it (:func:`is_second_and_far`).
        repeating: Whether this is another view of the last batch, which does not confirm it.
    """

    def __init__(
        self,
        current: Pair,
        alternatives: Tensor,
        batch: Pair,
        eps: float,
        *,
        leaves_first: bool = False,
        repeating: bool = False,
    ) -> None:
        self.current, self.alternatives, self.batch, self.eps = current, alternatives, batch, eps
        bounded, last, without_last, _ = pairs = [(alternatives[i], alternatives[i + 1]) for i in (0, 2, 4, 6)]
        to_bounded, to_last, to_earlier = (distance(batch, pairs[i], eps) for i in (0, 1, 3))
        self.repeated = (to_last < SAME) | repeating
        nearer = torch.minimum(to_bounded, to_earlier) < MARGIN * to_last
        self.contradicted = ~self.repeated & (nearer | leaves_first)
        chosen = _select(to_earlier < to_bounded, without_last, bounded)
        self.last = last
        self.chosen = _select(self.contradicted, chosen, current)

    def next_alternatives(self, after: Pair) -> Tensor:
        """Return the alternatives once the batch has updated the chosen statistics to ``after``."""
        bounded = bounded_move(self.chosen, after, self.eps)
        without_last = _select(self.contradicted, self.current, bounded)
        new = torch.stack([*bounded, *self.batch, *without_last, *self.last])
        return torch.where(self.repeated, self.alternatives, new.to(self.alternatives))


def _select(condition: Tensor, one: Pair, other: Pair) -> Pair:
    mean, variance = (torch.where(condition, a, b.to(a)) for a, b in zip(one, other, strict=True))
    return mean, variance
