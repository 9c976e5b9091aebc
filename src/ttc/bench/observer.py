"""What a clustering method did with a batch: the fraction it selected, the similarity of the views, the loss."""

import math
from collections.abc import Iterator

import torch

from ttc.clustering import ClusteringAdapter, SimilarityPreserving, Step, similarity
from ttc.core import Adapter, Part

_NOTHING = (math.nan, math.nan, math.nan)


class Observer:
    """Observes the clustering adapter in an adapter; other methods leave nothing to observe.

    Args:
        adapter: The adapter, or a wrapper of it.
    """

    def __init__(self, adapter: Adapter) -> None:
        self._step = _NOTHING
        self._constraint: SimilarityPreserving | None = None
        observed = next((part for part in _all_parts(adapter) if isinstance(part, ClusteringAdapter)), None)
        if observed is not None:
            terms = [*observed.losses, *observed.unselected]
            self._constraint = next((term for term in terms if isinstance(term, SimilarityPreserving)), None)
            observed.observer = self._observe

    def pop(self) -> tuple[float, float, float]:
        """Return the selected fraction, mean κ and loss of the last batch, NaN where there is none, and forget them."""
        step, self._step = self._step, _NOTHING
        return step

    def _observe(self, step: Step) -> None:
        selected = float((step.weights > 0).double().mean())
        loss = math.nan if step.loss is None else float(step.loss.detach())
        kappa = math.nan
        if len(step.assignment.views) > 1:
            features, neighbour = (view.features.detach() for view in step.assignment.views[:2])
            if self._constraint is not None and self._constraint.normalize_features:
                features, neighbour = map(torch.nn.functional.normalize, (features, neighbour))
            kappa = float(similarity(features, neighbour, self._constraint.bandwidth if self._constraint else 1).mean())
        self._step = (selected, kappa, loss)


def _all_parts(part: Part) -> Iterator[Part]:
    yield part
    for inner in part.parts():
        yield from _all_parts(inner)
