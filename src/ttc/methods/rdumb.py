"""RDumb: ETA that resets at regular intervals.

Press et al., "RDumb: A Simple Approach that Questions Our Progress in Continual Test-Time Adaptation", NeurIPS 2023.
"""

from torch import Tensor

from ttc.clustering import ClusteringAdapter, OptimizerFactory, ReliableAndDiverse, default_optimizer
from ttc.core import Adapter, Classifier, SmallBatches
from ttc.errors import TTCError
from ttc.methods.method import Method
from ttc.nn import copy_with_trainable_norms


class PeriodicReset(Adapter):
    """Adapts as ``base`` does and resets it after every ``period`` batches.

    It resets after the last batch of a period, not before the next one: the predictions are the same, and a rejected
    batch changes nothing.

    Args:
        base: The adapter that predicts and learns.
        period: The batches between resets; None never resets.
    """

    state_attributes = ("base", "elapsed")

    def __init__(self, base: Adapter, period: int | None) -> None:
        if period is not None and period < 1:
            raise TTCError(f"period is a positive number of batches, or None for no reset, got {period}")
        super().__init__(base.model)
        self.base, self.period = base, period
        self.samples_per_step: int | None = None  # set when samples are counted instead of batches
        self.elapsed = 0

    def adapt(self, x: Tensor) -> Tensor:
        """Return the output of the base method."""
        logits = self.base.adapt(x).detach()
        self.elapsed += len(x) if self.samples_per_step else 1
        if self.period is not None and self.elapsed >= self.period * (self.samples_per_step or 1):
            self.base.reset()
            self.elapsed = 0
        return logits

    def infer(self, x: Tensor) -> Tensor:
        """Return the output of the base method, as it is now."""
        return self.base.infer(x)

    def use_small_batches_(self, settings: SmallBatches) -> None:
        """Count samples instead of batches, as the optimizer steps of the base method then do."""
        super().use_small_batches_(settings)
        self.samples_per_step = settings.samples_per_step


def rdumb(
    model: Classifier,
    *,
    period: int | None = 1000,
    optimizer: OptimizerFactory | None = None,
    entropy_margin: float | None = None,
    redundancy_margin: float | None = None,
    momentum: float = 0.9,
) -> PeriodicReset:
    """RDumb: ETA that returns to the source model after every 1,000 batches.

    Press et al., "RDumb: A Simple Approach that Questions Our Progress in Continual Test-Time Adaptation", NeurIPS
    2023. The public code was read: it counts batches, whether or not they lead to a step, and resets parameters,
    optimizer and moving average. With ``small_batches`` 200 samples count as one batch, as they make one step.

    Differs from the public code: its margins, E0 = ln(1000)/2 - 1 and ε = 0.05, are those of 1,000 classes whatever the
    model; here they follow the number of classes, as in ETA.

    Args:
        period: The batches between resets; ``None`` never resets, which is ETA.
        optimizer: Makes the optimizer; Adam with lr 1e-3 below 500 classes, else SGD with lr 2.5e-4 and momentum 0.9.
        entropy_margin: E0 in nats: samples with a larger entropy are left out; 0.4 ln K unless given.
        redundancy_margin: ε: samples whose prediction has at least this cosine with the moving average of those learned
            before are left out; 0.4, 0.1 and 0.05 for 10, 100 and 1,000 classes, in between in proportion to 1/√K.
        momentum: The weight of the old value in that moving average.
    """
    classes = model.num_classes
    select = ReliableAndDiverse.for_classes(classes, entropy_margin, redundancy_margin, momentum)
    eta = ClusteringAdapter(copy_with_trainable_norms(model), optimizer or default_optimizer(classes), select=select)
    return PeriodicReset(eta, period)


METHOD = Method(
    name="rdumb", build=rdumb, changes=("norm affine",), backwards=1, needs=("large batches",), paper="Press 2023"
)
