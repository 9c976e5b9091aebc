"""ETA: TENT on reliable, diverse samples (EATA without its Fisher term).

Niu et al., "Efficient Test-Time Model Adaptation without Forgetting", ICML 2022.
"""

from functools import partial

from ttc.clustering import ClusteringAdapter, OptimizerFactory, ReliableAndDiverse, default_optimizer
from ttc.core import Classifier
from ttc.methods.method import Method
from ttc.nn import copy_with_trainable_norms


def eta(
    model: Classifier,
    *,
    optimizer: OptimizerFactory | None = None,
    entropy_margin: float | None = None,
    redundancy_margin: float | None = None,
    momentum: float = 0.9,
) -> ClusteringAdapter:
    """ETA: TENT on confident samples that differ from those learned before, weighted by confidence.

    Niu et al., "Efficient Test-Time Model Adaptation without Forgetting", ICML 2022 (EATA without its Fisher term).

    The preset ``eta-paper`` sets ε = 0.05 whatever K: with ten classes nothing is selected after the first batch and
    the method predicts almost as NORM does, which is what the TTC paper's ETA row looks like.

    Args:
        optimizer: Makes the optimizer; Adam with lr 1e-3 below 500 classes, else SGD with lr 2.5e-4 and momentum 0.9.
        entropy_margin: E0 in nats: samples with a larger entropy are left out; 0.4 ln K unless given.
        redundancy_margin: ε: samples whose prediction has at least this cosine with the moving average of those learned
            before are left out; 0.4, 0.1 and 0.05 for 10, 100 and 1,000 classes, in between in proportion to 1/√K.
        momentum: The weight of the old value in that moving average.
    """
    classes = model.num_classes
    select = ReliableAndDiverse.for_classes(classes, entropy_margin, redundancy_margin, momentum)
    return ClusteringAdapter(copy_with_trainable_norms(model), optimizer or default_optimizer(classes), select=select)


METHOD = Method(
    name="eta", build=eta, changes=("norm affine",), backwards=1, needs=("large batches",), paper="Niu 2022"
)
VARIANTS = (
    Method(
        name="eta-paper",
        build=partial(eta, redundancy_margin=0.05),
        changes=("norm affine",),
        backwards=1,
        needs=("large batches",),
        paper="as in Lin 2023",
    ),
)
