"""DELTA: batch renormalization with running statistics, and weights against classes that dominate.

Zhao, Chen and Xia, "DELTA: Degradation-Free Fully Test-Time Adaptation", ICLR 2023.
"""

from functools import partial
from typing import Literal

from ttc.clustering import (
    ClassBalanced,
    OptimizerFactory,
    ReliableAndDiverse,
    SelectAll,
    Selector,
    default_optimizer,
)
from ttc.clustering.cautious_cycle import CautiousClusteringAdapter
from ttc.core import Classifier
from ttc.methods.method import Method
from ttc.nn import BatchRenorm, BatchStatisticsNorm, copy_with_trainable_norms


def delta(
    model: Classifier,
    *,
    on: Literal["tent", "eta"] = "tent",
    optimizer: OptimizerFactory | None = None,
    renormalize: bool = True,
    reweight: bool = True,
    decay: float = 0.95,
    frequency_decay: float = 0.95,
    entropy_margin: float | None = None,
    redundancy_margin: float | None = None,
) -> CautiousClusteringAdapter:
    """DELTA: TENT or ETA with running statistics and with weights against classes that dominate.

    Zhao, Chen and Xia, "DELTA: Degradation-Free Fully Test-Time Adaptation", ICLR 2023. Two parts:

    Batch renormalization: layers normalize with running mean and deviation of the test stream, first those of the first
    batch, then 0.95 · old + 0.05 · batch, while gradients pass through the statistics of the batch.

    Reweighting: z, at first 1/K, is a moving average of the mean probability per class. A sample predicted as class k
    weighs 1 / z_k, scaled to mean 1 over the batch; then z ← 0.95 z + 0.05 · mean probability.

    Read for this: the abstract, public notes on the paper, and a public implementation of both parts; the decay 0.95 is
    recalled from the paper. Differs from public code: a reset, and a prediction without learning, leave running
    statistics as they should be; with ETA the selection is that of ETA, not H < 0.5 ln K alone; a batch far from those
    before is not learned from until another like it comes (:class:`ttc.core.cautious.CautiousAdapter`).

    With ``small_batches`` the layers use the statistics of that policy, and weights are 1 / (K z_k), which need no
    batch to be scaled over.

    Args:
        on: The method to improve: every sample (TENT), or ETA's selection and weights.
        optimizer: Makes the optimizer; Adam with lr 1e-3 below 500 classes, else SGD with lr 2.5e-4 and momentum 0.9.
        renormalize: Whether to renormalize; else layers use the statistics of the batch.
        reweight: Whether to weight by class frequency; with neither part it is the base method.
        decay: The weight of the old value in the running statistics.
        frequency_decay: The weight of the old value in z.
        entropy_margin: E0 of ETA in nats; 0.4 ln K unless given.
        redundancy_margin: ε of ETA; 0.4, 0.1 and 0.05 for 10, 100 and 1,000 classes unless given.
    """
    classes = model.num_classes
    select: Selector = SelectAll()
    if on == "eta":
        select = ReliableAndDiverse.for_classes(classes, entropy_margin, redundancy_margin)
    if reweight:
        select = ClassBalanced(select, decay=frequency_decay)
    statistics = partial(BatchRenorm, decay=decay) if renormalize else BatchStatisticsNorm
    prepared = copy_with_trainable_norms(model, statistics)
    return CautiousClusteringAdapter(prepared, optimizer or default_optimizer(classes), select=select)


METHOD = Method(
    name="delta",
    build=delta,
    changes=("norm affine", "norm statistics"),
    backwards=1,
    needs=("large batches",),
    paper="Zhao 2023",
    memory="running statistics, class frequencies",
)
