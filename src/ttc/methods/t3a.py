"""T3A: the classifier replaced by class prototypes of confident test features.

Iwasawa and Matsuo, "Test-Time Classifier Adjustment Module for Model-Agnostic Domain Generalization", NeurIPS 2021.
"""

from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ttc.clustering import Supports, initial_supports, supports_per_class
from ttc.clustering.support_memory import SupportMemory
from ttc.core import Adapter, Classifier, ExportParts, require_finite
from ttc.methods.method import Method
from ttc.nn import frozen_copy


class T3A(Adapter):
    """Predicts with the similarity of a feature to the mean support of each class.

    Scores are not calibrated logits. Differs from the original: ``filter_size=None`` really keeps all supports, a class
    without supports gets the lowest finite score instead of zero, images with absurd logits become no supports, and the
    supports of an outlier among alike batches are dropped (:class:`ttc.clustering.support_memory.SupportMemory`).

    Args:
        model: A prepared, frozen copy.
        filter_size: M, the supports of lowest entropy to keep per class; None keeps all.
    """

    state_attributes = ("model", "memory")

    def __init__(self, model: Classifier, filter_size: int | None) -> None:
        super().__init__(model)
        self.memory = SupportMemory(initial_supports(model), filter_size, model.num_classes)

    @torch.no_grad()
    def adapt(self, x: Tensor) -> Tensor:
        """Add the batch to the supports and return the scores (N, K)."""
        logits, features = self.model(x)
        new = Supports.plausible(features, require_finite(logits))
        supports = self.memory.joined(x, new)
        self.memory.store(x, supports)
        return self._scores(features, supports)

    def infer(self, x: Tensor) -> Tensor:
        """Return the scores (N, K) with the supports as they are."""
        logits, features = self.model(x)
        require_finite(logits)
        return self._scores(features, self.memory.known_at(x))

    @torch.no_grad()
    def export_parts(self) -> ExportParts:
        """Return the prototypes as a linear head; a class without supports has the lowest finite bias."""
        prototypes, supported = self._prototypes(self.memory.supports)
        head = nn.Linear(prototypes.shape[1], len(prototypes), device=prototypes.device, dtype=prototypes.dtype)
        head.weight.copy_(prototypes)
        head.bias.zero_().masked_fill_(~supported, torch.finfo(prototypes.dtype).min)
        return ExportParts(head=head)

    def _scores(self, features: Tensor, supports: Supports) -> Tensor:
        prototypes, supported = self._prototypes(supports)
        scores = (features @ prototypes.T).to(features.dtype)  # inside autocast the product has less range
        return scores.masked_fill(~supported, torch.finfo(features.dtype).min)

    def _prototypes(self, supports: Supports) -> tuple[Tensor, Tensor]:
        """Return the unit prototype of each class (K, D), and whether the class has supports (K,)."""
        classes = self.model.num_classes
        return F.normalize(supports.prototypes(classes)), supports.labels.bincount(minlength=classes) > 0


def t3a(model: Classifier, *, filter_size: int | Literal["auto"] | None = "auto") -> T3A:
    """T3A: class prototypes of confident test features replace the head.

    Iwasawa and Matsuo, NeurIPS 2021.

    The preset ``t3a-paper`` sets M = 1, which is what the TTC paper's T3A row probably ran.

    Args:
        filter_size: M: keep the M samples of lowest entropy per class; ``"auto"`` is 100 up to ten classes, else 20;
            ``None`` keeps all.
    """
    return T3A(frozen_copy(model), supports_per_class(filter_size, model.num_classes))


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
