"""ETA: TENT on reliable, diverse samples (EATA without its Fisher term).

Niu et al., "Efficient Test-Time Model Adaptation without Forgetting", ICML 2022.
"""

import math
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
    select = ReliableAndDiverse(
        entropy_margin=0.4 * math.log(classes) if entropy_margin is None else entropy_margin,
        redundancy_margin=_redundancy_margin(classes) if redundancy_margin is None else redundancy_margin,
        momentum=momentum,
    )
    return ClusteringAdapter(copy_with_trainable_norms(model), optimizer or default_optimizer(classes), select=select)


def _redundancy_margin(num_classes: int) -> float:
    """Return ε: published values, else proportional to 1/√K, the cosine of a sure prediction with a uniform one."""
    published = {10: 0.4, 100: 0.1, 1000: 0.05}
    return published.get(num_classes, min(0.95, 0.4 * math.sqrt(10 / num_classes)))


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
