"""TENT: entropy minimization on scale and shift of normalization layers.

Wang et al., "Tent: Fully Test-Time Adaptation by Entropy Minimization", ICLR 2021.
"""

from ttc.clustering import ClusteringAdapter, OptimizerFactory, default_optimizer
from ttc.core import Classifier
from ttc.methods.method import Method
from ttc.nn import copy_with_trainable_norms


def tent(model: Classifier, *, optimizer: OptimizerFactory | None = None) -> ClusteringAdapter:
    """TENT: entropy minimization on scale and shift, with batch statistics.

    Wang et al., "Tent: Fully Test-Time Adaptation by Entropy Minimization", ICLR 2021.

    Args:
        optimizer: Makes the optimizer; Adam with lr 1e-3 below 500 classes, else SGD with lr 2.5e-4 and momentum 0.9.
    """
    return ClusteringAdapter(copy_with_trainable_norms(model), optimizer or default_optimizer(model.num_classes))


METHOD = Method(
    name="tent", build=tent, changes=("norm affine",), backwards=1, needs=("large batches",), paper="Wang 2021"
)
