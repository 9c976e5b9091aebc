"""The paper's view: entropy-based adaptation as clustering, one A-step and one U-step per batch."""

from ttc.clustering.assignment import (
    Assignment,
    Fuse,
    assign,
    first_view,
    mean_of_probabilities,
    mean_of_views,
)
from ttc.clustering.augmentation import BatchAugmentation, Normalize
from ttc.clustering.cycle import ClusteringAdapter, Step
from ttc.clustering.losses import Loss, SimilarityPreserving, conservative_entropy, entropy, similarity
from ttc.clustering.memory import BalancedMemory
from ttc.clustering.penalty import FisherPenalty, Penalty
from ttc.clustering.selection import BelowMeanEntropy, ReliableAndDiverse, SelectAll, Selector
from ttc.clustering.teacher import (
    restore_randomly_,
    soft_cross_entropy,
    symmetric_cross_entropy,
    update_average_,
)
from ttc.clustering.update import (
    OptimizerFactory,
    Updater,
    batch_mean,
    batches_for,
    default_optimizer,
    selected_mean,
)
from ttc.clustering.views import (
    GaussianNoise,
    PatchShuffle,
    RandomResizedCrop,
    RandomRotation,
    RandomView,
    View,
    horizontal_flip,
    identity,
    in_input_units,
    vertical_flip,
)
from ttc.core.entropy import softmax_entropy

__all__ = [
    "Assignment",
    "BalancedMemory",
    "BatchAugmentation",
    "BelowMeanEntropy",
    "ClusteringAdapter",
    "FisherPenalty",
    "Fuse",
    "GaussianNoise",
    "Loss",
    "Normalize",
    "OptimizerFactory",
    "PatchShuffle",
    "Penalty",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomView",
    "ReliableAndDiverse",
    "SelectAll",
    "Selector",
    "SimilarityPreserving",
    "Step",
    "Updater",
    "View",
    "assign",
    "batch_mean",
    "batches_for",
    "conservative_entropy",
    "default_optimizer",
    "entropy",
    "first_view",
    "horizontal_flip",
    "identity",
    "in_input_units",
    "mean_of_probabilities",
    "mean_of_views",
    "restore_randomly_",
    "selected_mean",
    "similarity",
    "soft_cross_entropy",
    "softmax_entropy",
    "symmetric_cross_entropy",
    "update_average_",
    "vertical_flip",
]
