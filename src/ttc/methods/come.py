"""COME: conservative entropy minimization.

Zhang et al., "COME: Test-time Adaption by Conservatively Minimizing Entropy", ICLR 2025.
"""

from ttc.clustering import ClusteringAdapter, OptimizerFactory, conservative_entropy, default_optimizer
from ttc.core import Classifier
from ttc.methods.method import Method
from ttc.nn import copy_with_trainable_norms


def come(model: Classifier, *, optimizer: OptimizerFactory | None = None) -> ClusteringAdapter:
    """COME: TENT with an entropy that counts a lack of evidence as uncertainty.

    Zhang et al., "COME: Test-time Adaption by Conservatively Minimizing Entropy", ICLR 2025.

    The logits f are evidence for a Dirichlet distribution: beliefs b = exp(f)/S and uncertainty u = K/S with
    S = Σ exp(f) + K. Each step minimizes -Σ b log b - u log u, with the norm of f constant in the backward pass. The
    abstract and the loss of the public code were read, not the whole paper.

    Differs from the public code: it writes 1,000 for K and adds 1e-7 to the probabilities; here K is the number of
    classes and the entropy is computed from log-probabilities.

    Args:
        optimizer: Makes the optimizer; Adam with lr 1e-3 below 500 classes, else SGD with lr 2.5e-4 and momentum 0.9.
    """
    return ClusteringAdapter(
        copy_with_trainable_norms(model),
        optimizer or default_optimizer(model.num_classes),
        losses=(conservative_entropy,),
    )


METHOD = Method(
    name="come", build=come, changes=("norm affine",), backwards=1, needs=("large batches",), paper="Zhang 2025"
)
