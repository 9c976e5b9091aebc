"""EATA: ETA with a Fisher penalty against forgetting the source.

Niu et al., "Efficient Test-Time Model Adaptation without Forgetting", ICML 2022.
"""

from torch import Tensor

from ttc.clustering import (
    ClusteringAdapter,
    FisherPenalty,
    OptimizerFactory,
    ReliableAndDiverse,
    default_optimizer,
)
from ttc.core import Classifier
from ttc.methods.method import Method
from ttc.nn import copy_with_trainable_norms, require_source_images

SOURCE_IMAGES = 2000


def eata(
    model: Classifier,
    *,
    source_images: Tensor | None = None,
    optimizer: OptimizerFactory | None = None,
    fisher_weight: float | None = None,
    fisher_batch_size: int = 64,
    entropy_margin: float | None = None,
    redundancy_margin: float | None = None,
    momentum: float = 0.9,
) -> ClusteringAdapter:
    """EATA: ETA with a penalty that holds back parameters which matter for source images.

    Niu et al., "Efficient Test-Time Model Adaptation without Forgetting", ICML 2022.

    Before the first batch, F is the mean over batches of source images of the squared gradient of the cross-entropy
    with the model's own labels, with batch statistics. Each batch with a selected sample then minimizes the loss of
    ETA plus β Σ F (θ - θ_0)². With β = 0 it is ETA, and needs no source images.

    Differs from the public code: ``reset()`` also forgets the moving average of predictions, which the public code
    carries over; its option to clip F, which has no effect there, is left out.

    Args:
        source_images: About 2,000 clean images (M, C, H, W) like those the model was trained on, without labels.
        optimizer: Makes the optimizer; Adam with lr 1e-3 below 500 classes, else SGD with lr 2.5e-4 and momentum 0.9.
        fisher_weight: β; 1 below 500 classes, else 2,000.
        fisher_batch_size: Source images per batch; F falls as 1 / this size, so change β with it.
        entropy_margin: E0 in nats: samples with a larger entropy are left out; 0.4 ln K unless given.
        redundancy_margin: ε: samples whose prediction has at least this cosine with the moving average of those learned
            before are left out; 0.4, 0.1 and 0.05 for 10, 100 and 1,000 classes, in between in proportion to 1/√K.
        momentum: The weight of the old value in that moving average.
    """
    classes, prepared = model.num_classes, copy_with_trainable_norms(model)
    weight = (1.0 if classes < 500 else 2000.0) if fisher_weight is None else fisher_weight
    penalty = None
    if weight:
        images = require_source_images(prepared, source_images, method="eata", count=SOURCE_IMAGES)
        penalty = FisherPenalty(prepared, images, weight=weight, batch_size=fisher_batch_size)
    return ClusteringAdapter(
        prepared,
        optimizer or default_optimizer(classes),
        select=ReliableAndDiverse.for_classes(classes, entropy_margin, redundancy_margin, momentum),
        penalty=penalty,
    )


METHOD = Method(
    name="eata",
    build=eata,
    changes=("norm affine",),
    backwards=1,
    needs=("large batches", "source images"),
    paper="Niu 2022",
    memory="Fisher information and source values of scale and shift",
    source_images=SOURCE_IMAGES,
)
