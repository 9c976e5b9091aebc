"""Algorithm 1 of the paper for methods that one outlier would change for long."""

from collections.abc import Sequence

from torch import Tensor

from ttc.clustering.cycle import ClusteringAdapter
from ttc.clustering.losses import Loss, entropy
from ttc.clustering.selection import Selector
from ttc.clustering.update import OptimizerFactory
from ttc.core.cautious import CautiousAdapter
from ttc.core.classifier import Classifier
from ttc.core.outlier_check import OutlierCheck


class CautiousClusteringAdapter(CautiousAdapter, ClusteringAdapter):
    """A clustering adapter that learns from a batch far from those before only when another like it comes.

    Args:
        model: A prepared copy.
        optimizer: Makes the optimizer.
        losses: Losses of the selected samples, summed.
        select: The weight of each sample; every sample with weight one unless given.
    """

    state_attributes = (*ClusteringAdapter.state_attributes, "check")

    def __init__(
        self,
        model: Classifier,
        optimizer: OptimizerFactory,
        *,
        losses: Sequence[Loss] = (entropy,),
        select: Selector | None = None,
    ) -> None:
        super().__init__(model, optimizer, losses=losses, select=select)
        self.check = OutlierCheck()

    def learn(self, x: Tensor) -> Tensor:
        """Run one cycle of clustering."""
        return ClusteringAdapter.adapt(self, x)
