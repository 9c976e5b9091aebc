"""SOURCE: the model as it was trained, without adaptation."""

from ttc.core import Classifier, PredictOnly
from ttc.methods.method import Method
from ttc.nn import frozen_copy


def source(model: Classifier) -> PredictOnly:
    """SOURCE: the model as it was trained, unchanged."""
    return PredictOnly(frozen_copy(model))


METHOD = Method(name="source", build=source, changes=("nothing",), needs=("nothing",), paper="baseline")
