"""What a clustering method did with a batch: the share it selected, the similarity of the views, the loss."""

import math

import torch

from ttc.clustering import ClusteringAdapter, SimilarityPreserving, Step, similarity
from ttc.core import Adapter


class Observer:
    """Watches an adapter that is made of the parts of clustering; of any other it has nothing to tell."""

    def __init__(self, adapter: Adapter) -> None:
        self._step = (math.nan, math.nan, math.nan)
        watched = getattr(adapter, "base", adapter)  # a flip control wraps the method that learns
        if isinstance(watched, ClusteringAdapter):
            terms = [*watched.losses, *watched.unselected]
            self._constraint = next((term for term in terms if isinstance(term, SimilarityPreserving)), None)
            watched.observer = self._see

    def taken(self) -> tuple[float, float, float]:
        """The selected fraction, mean κ and loss of the last batch, NaN where there is none; forgotten afterwards."""
        step, self._step = self._step, (math.nan, math.nan, math.nan)
        return step

    def _see(self, step: Step) -> None:
        selected = float((step.weights > 0).double().mean())
        loss = math.nan if step.loss is None else float(step.loss.detach())
        kappa = math.nan
        if len(step.assignment.views) > 1:
            features, neighbour = (view.features.detach() for view in step.assignment.views[:2])
            if self._constraint is not None and self._constraint.normalize_features:
                features, neighbour = map(torch.nn.functional.normalize, (features, neighbour))
            kappa = float(similarity(features, neighbour, self._constraint.bandwidth if self._constraint else 1).mean())
        self._step = (selected, kappa, loss)
