"""The model an adapter started from, as it was trained."""

import copy

from torch import Tensor

from ttc.core.adapter import Adapter
from ttc.core.classifier import Classifier
from ttc.core.normalization import NamedNorm, TrackNorm
from ttc.core.replacement import put


class HeldNorm(NamedNorm):
    """BN-SOURCE: the mean and variance that the source stored."""

    def __init__(self, layer: NamedNorm) -> None:
        super().__init__(layer)
        if isinstance(layer, TrackNorm):
            self.mean, self.variance = layer.mean[0], layer.variance[0]
        if self.weight is not None and self.mean is not None and self.variance is not None:
            self.mean, self.variance = self.mean.to(self.weight.dtype), self.variance.to(self.weight.dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.held(x)


def source_model(adapter: Adapter) -> Classifier:
    """A frozen classifier that answers as the model did before it was adapted; shares what adaptation cannot change."""
    frozen = {id(parameter): parameter for parameter in adapter.model.parameters() if not parameter.requires_grad}
    model = copy.deepcopy(adapter.model, frozen)
    adapter.start.restore(model)
    for name, layer in list(model.network.named_modules()):
        if isinstance(layer, NamedNorm) and layer.mean is not None:
            put(model.network, name, HeldNorm(layer).eval())
    return model.requires_grad_(False)
