"""SOURCE: the model as it was trained, without adaptation."""

import torch
from torch import Tensor

from ttc.core import Adapter, Classifier, require_finite
from ttc.methods.method import Method
from ttc.nn import frozen_copy


class SourceAdapter(Adapter):
    """Predicts with the source model; nothing changes."""

    @torch.no_grad()
    def adapt(self, x: Tensor) -> Tensor:
        """Return the model's logits."""
        return require_finite(self.model(x).logits)

    def infer(self, x: Tensor) -> Tensor:
        """Return the model's logits: there is nothing to learn."""
        return self.adapt(x)


def source(model: Classifier) -> SourceAdapter:
    """SOURCE: the model as it was trained, unchanged."""
    return SourceAdapter(frozen_copy(model))


METHOD = Method(name="source", build=source, changes=("nothing",), needs=("nothing",), paper="baseline")
