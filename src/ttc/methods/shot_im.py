"""SHOT-IM, online: information maximization on the feature extractor, with the head fixed.

Liang et al., "Do We Really Need to Access the Source Data? Source Hypothesis Transfer for Unsupervised Domain
Adaptation", ICML 2020.
"""

from functools import partial
from typing import Literal

import torch

from ttc.clustering import Diversity, NotSingle, OptimizerFactory, entropy
from ttc.clustering.cautious_cycle import CautiousClusteringAdapter
from ttc.core import Classifier
from ttc.methods.method import Method
from ttc.nn import copy_with_trainable_norms, copy_with_trainable_parameters


def shot_im(
    model: Classifier,
    *,
    optimizer: OptimizerFactory | None = None,
    diversity: float = 1.0,
    trains: Literal["backbone", "norm affine"] = "backbone",
) -> CautiousClusteringAdapter:
    """SHOT-IM: confident predictions per image, diverse ones per batch; trains all layers but the head.

    Liang et al., "Do We Really Need to Access the Source Data?", ICML 2020, used online, one step per batch: minimize
    the mean entropy plus Σ_k p̄_k log(p̄_k + 1e-5) of the mean probability p̄; predict from before the step.

    A batch of one image has p̄ = p, where the two terms cancel: it is predicted and not learned from. Batches should
    have several times as many images as there are classes predicted.

    Differs from the paper: online, without its cluster pseudo-labels. The paper trains offline for 15 epochs and leaves
    online settings open; the statistics of the batch and the learning rates here are ours. A batch far from those
    before is not learned from until another like it comes (:class:`ttc.core.cautious.CautiousAdapter`).

    Args:
        optimizer: Makes the optimizer; Adam with lr 1e-4 below 500 classes, else SGD with lr 1e-4 and momentum 0.9.
        diversity: The weight of the second term; 0 minimizes the entropy alone.
        trains: The parameters to train: all but those of the head, or scale and shift of the normalization layers;
            the latter with ``diversity=0`` is TENT.
    """
    backbone = trains == "backbone"
    prepared = copy_with_trainable_parameters(model, head=False) if backbone else copy_with_trainable_norms(model)
    losses = (entropy, Diversity(diversity)) if diversity else (entropy,)
    make = optimizer or _default_optimizer(model.num_classes)
    return CautiousClusteringAdapter(prepared, make, losses=losses, select=NotSingle() if diversity else None)


def _default_optimizer(num_classes: int) -> OptimizerFactory:
    if num_classes < 500:
        return partial(torch.optim.Adam, lr=1e-4)
    return partial(torch.optim.SGD, lr=1e-4, momentum=0.9)


METHOD = Method(
    name="shot-im",
    build=shot_im,
    changes=("backbone",),
    backwards=1,
    needs=("large batches",),
    paper="Liang 2020",
)
