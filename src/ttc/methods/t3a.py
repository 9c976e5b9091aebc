"""T3A: the classifier replaced by class prototypes of confident test features.

Iwasawa and Matsuo, "Test-Time Classifier Adjustment Module for Model-Agnostic Domain Generalization", NeurIPS 2021.
"""

from functools import partial
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ttc.clustering import softmax_entropy
from ttc.core import Adapter, Classifier, require_finite
from ttc.errors import TTCError
from ttc.methods.method import Method
from ttc.nn import frozen_copy


class Supports(NamedTuple):
    """The support set: features (S, D), labels (S,), entropies (S,)."""

    features: Tensor
    labels: Tensor
    entropy: Tensor


class T3A(Adapter):
    """Predicts with the similarity of a feature to the mean support of each class.

    Scores are not calibrated logits. Differs from the original: ``filter_size=None`` really keeps all supports, and a
    class without supports gets the lowest finite score instead of zero.

    Args:
        model: A prepared, frozen copy.
        filter_size: M, the supports of lowest entropy to keep per class; None keeps all.
    """

    state_attributes = ("model", "supports")
    resizable_attributes = ("supports",)

    def __init__(self, model: Classifier, filter_size: int | None) -> None:
        super().__init__(model)
        if filter_size is not None and filter_size < 1:
            raise TTCError(f"filter_size is a positive number of samples per class, or None for all, got {filter_size}")
        self.filter_size = filter_size
        self.supports = self._initial_supports()

    @torch.no_grad()
    def adapt(self, x: Tensor) -> Tensor:
        """Add the batch to the supports and return the scores (N, K)."""
        logits, features = self.model(x)
        new = _supports(features, require_finite(logits))
        joined = Supports(*(torch.cat(pair) for pair in zip(self.supports, new, strict=True)))
        self.supports = self._pruned(joined)
        return self._scores(features)

    def check_state(self, state: dict[str, Any]) -> None:
        """Check that there is a label and an entropy for each support."""
        features, labels, entropy = state["supports"]
        known = bool(((labels >= 0) & (labels < self.model.num_classes)).all())
        if not (len(features) == len(labels) == len(entropy) and known):
            raise ValueError("features, labels and entropies of the supports do not belong together")

    def infer(self, x: Tensor) -> Tensor:
        """Return the scores (N, K) with the supports as they are."""
        logits, features = self.model(x)
        require_finite(logits)
        return self._scores(features)

    @torch.no_grad()
    def _initial_supports(self) -> Supports:
        with torch.inference_mode(False):
            rows = self.model.head_weight.detach().clone()
            return _supports(rows, F.linear(rows, self.model.head_weight, getattr(self.model.head, "bias", None)))

    def _scores(self, features: Tensor) -> Tensor:
        prototypes, supported = self._prototypes()
        scores = (features @ prototypes.T).to(features.dtype)  # inside autocast the product has less range
        return scores.masked_fill(~supported, torch.finfo(features.dtype).min)

    def _pruned(self, supports: Supports) -> Supports:
        """The ``filter_size`` supports of lowest entropy of each class; of equal ones, those that came first."""
        if self.filter_size is None:
            return supports
        order = supports.entropy.argsort(stable=True)
        order = order[supports.labels[order].argsort(stable=True)]  # by class, then by entropy
        labels = supports.labels[order]
        sizes = labels.bincount(minlength=self.model.num_classes)
        rank = torch.arange(len(labels), device=labels.device) - (sizes.cumsum(0) - sizes)[labels]
        selected = order[rank < self.filter_size].sort().values
        return Supports(*(part[selected] for part in supports))

    def _prototypes(self) -> tuple[Tensor, Tensor]:
        """Return the unit prototype of each class (K, D), and whether the class has supports (K,)."""
        features, labels, _ = self.supports
        sums = features.new_zeros(self.model.num_classes, features.shape[1])
        sums.index_add_(0, labels, F.normalize(features))
        return F.normalize(sums), labels.bincount(minlength=self.model.num_classes) > 0


def t3a(model: Classifier, *, filter_size: int | Literal["auto"] | None = "auto") -> T3A:
    """T3A: class prototypes of confident test features replace the head.

    Iwasawa and Matsuo, NeurIPS 2021.

    The preset ``t3a-paper`` sets M = 1, which is what the TTC paper's T3A row probably ran.

    Args:
        filter_size: M: keep the M samples of lowest entropy per class; ``"auto"`` is 100 up to ten classes, else 20;
            ``None`` keeps all.
    """
    size = (100 if model.num_classes <= 10 else 20) if filter_size == "auto" else filter_size
    return T3A(frozen_copy(model), size)


def _supports(features: Tensor, logits: Tensor) -> Supports:
    return Supports(features, logits.argmax(1), softmax_entropy(logits))


METHOD = Method(
    name="t3a",
    build=t3a,
    changes=("head",),
    needs=("linear head",),
    paper="Iwasawa 2021",
    predicts="after",
    memory="100 features per class up to ten classes, else 20",
)
VARIANTS = (
    Method(
        name="t3a-paper",
        build=partial(t3a, filter_size=1),
        changes=("head",),
        needs=("linear head",),
        paper="as in Lin 2023",
        predicts="after",
        memory="1 feature per class",
    ),
)
