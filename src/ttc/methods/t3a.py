"""T3A: the classifier replaced by class prototypes of confident test features.

Iwasawa and Matsuo, "Test-Time Classifier Adjustment Module for Model-Agnostic Domain Generalization", NeurIPS 2021.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ttc.clustering import softmax_entropy
from ttc.core import Adapter, Classifier, finite, frozen
from ttc.errors import TTCError


class Supports(NamedTuple):
    """The remembered samples: features (S, D), labels (S,), entropies (S,)."""

    features: Tensor
    labels: Tensor
    entropy: Tensor


class T3A(Adapter):
    """Answers with the similarity of a feature to each class's mean remembered feature.

    Scores are not calibrated logits. Differs from the original: keeping all supports really keeps all, and a class
    without supports gets the lowest finite score instead of zero.
    """

    holds = ("model", "supports")

    def __init__(self, model: Classifier, filter_size: int | None) -> None:
        super().__init__(model)
        if filter_size is not None and filter_size < 1:
            raise TTCError(f"filter_size is a positive number of samples a class, or None for all, got {filter_size}")
        self.filter_size = filter_size
        self.supports = self._initial()

    @torch.no_grad()
    def adapt(self, x: Tensor) -> Tensor:
        """The scores (N, K) after the batch joined the supports."""
        logits, features = self.model(x)
        new = _supports(features, finite(logits))
        joined = Supports(*(torch.cat(pair) for pair in zip(self.supports, new, strict=True)))
        self.supports = self._pruned(joined)
        return self._scores(features)

    def answer_only(self, x: Tensor) -> Tensor:
        """The scores (N, K) with the supports it holds."""
        logits, features = self.model(x)
        finite(logits)
        return self._scores(features)

    def reset(self) -> None:
        """Back to the rows of the classifier as the only supports."""
        super().reset()
        self.supports = self._initial()

    @torch.no_grad()
    def _initial(self) -> Supports:
        with torch.inference_mode(False):
            rows = self.model.head_weight.detach().clone()
            return _supports(rows, F.linear(rows, self.model.head_weight, getattr(self.model.head, "bias", None)))

    def _scores(self, features: Tensor) -> Tensor:
        prototypes, held = self._prototypes()
        return (features @ prototypes.T).masked_fill(~held, torch.finfo(features.dtype).min)

    def _pruned(self, supports: Supports) -> Supports:
        """The ``filter_size`` supports of lowest entropy of each class; of equal ones, those that came first."""
        if self.filter_size is None:
            return supports
        order = supports.entropy.argsort(stable=True)
        order = order[supports.labels[order].argsort(stable=True)]  # by class, then by entropy
        labels = supports.labels[order]
        sizes = labels.bincount(minlength=self.model.num_classes)
        rank = torch.arange(len(labels), device=labels.device) - (sizes.cumsum(0) - sizes)[labels]
        kept = order[rank < self.filter_size].sort().values
        return Supports(*(part[kept] for part in supports))

    def _prototypes(self) -> tuple[Tensor, Tensor]:
        """The unit prototype of each class (K, D), and whether the class has supports (K,)."""
        features, labels, _ = self.supports
        sums = features.new_zeros(self.model.num_classes, features.shape[1])
        sums.index_add_(0, labels, F.normalize(features))
        return F.normalize(sums), labels.bincount(minlength=self.model.num_classes) > 0


def t3a(model: Classifier, *, filter_size: int | str | None = "auto") -> T3A:
    """T3A: class prototypes of confident test features replace the head.

    Iwasawa and Matsuo, NeurIPS 2021. ``filter_size`` M keeps the M samples of lowest entropy of each class: 100 up to
    ten classes and 20 above unless given; ``None`` keeps all.

    The preset ``t3a-paper`` sets M = 1, which is what the TTC paper's T3A row probably ran.
    """
    if filter_size == "auto":
        filter_size = 100 if model.num_classes <= 10 else 20
    if isinstance(filter_size, str):
        raise TTCError(f"filter_size is a number, None for all, or 'auto', got '{filter_size}'")
    return T3A(frozen(model), filter_size)


def _supports(features: Tensor, logits: Tensor) -> Supports:
    return Supports(features, logits.argmax(1), softmax_entropy(logits))
