"""The supports of a stream, from which those of an outlier are dropped."""

from typing import Any

from torch import Tensor

from ttc.clustering.supports import Supports
from ttc.core.outlier_check import OutlierCheck
from ttc.core.part import Part


class SupportMemory(Part):
    """Supports, and those from before the last batch: they continue if the next batch shows the last as an outlier.

    If the second batch is far from the first, either can be the outlier: ``supports`` are those without the first batch
    then, ``before`` those without the second.

    Args:
        supports: The first supports, those of the head.
        per_class: How many to keep per class, those of lowest entropy; None keeps all.
        num_classes: K.
    """

    state_attributes = ("supports", "before", "check")
    resizable_attributes = ("supports", "before")

    def __init__(self, supports: Supports, per_class: int | None, num_classes: int) -> None:
        self.supports = self.before = supports
        self.check = OutlierCheck()
        self.per_class, self.num_classes = per_class, num_classes

    def known_at(self, x: Tensor) -> Supports:
        """Return the supports when the images ``x`` come, without those of an outlier."""
        leaves_last = self.check.is_contradicted_by(x) or self.check.is_second_and_far(x)
        return self.before if leaves_last else self.supports

    def joined(self, x: Tensor, new: Supports) -> Supports:
        """Return the supports with those of the images ``x``; nothing is stored."""
        return self.known_at(x).joined(new, self.per_class, self.num_classes)

    def store(self, x: Tensor, supports: Supports) -> None:
        """Store what :meth:`joined` returned for the images ``x``."""
        self.before = self.supports if self.check.is_second_and_far(x) else self.known_at(x)
        self.supports = supports
        self.check.include(x)

    def check_state(self, state: dict[str, Any]) -> None:
        """Check that there are a label, an entropy and, where stored, logits for each support."""
        for name in ("supports", "before"):
            labels, stored = state[name][1], [values for values in state[name] if values is not None]
            known = bool(((labels >= 0) & (labels < self.num_classes)).all())
            if not known or any(not isinstance(values, Tensor) or len(values) != len(labels) for values in stored):
                raise ValueError("features, labels and entropies of the supports do not belong together")
