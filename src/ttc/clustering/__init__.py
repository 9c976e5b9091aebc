"""The paper's view: entropy-based adaptation as clustering, one A-step and one U-step per batch."""

from ttc.clustering.assignment import (
    Assignment,
    Fuse,
    assign,
    first_view,
    mean_of_probabilities,
    mean_of_views,
    softmax_entropy,
)
from ttc.clustering.cycle import ClusteringAdapter, Step
from ttc.clustering.losses import Loss, SimilarityPreserving, conservative_entropy, entropy, similarity
from ttc.clustering.penalty import FisherPenalty, Penalty
from ttc.clustering.selection import BelowMeanEntropy, ReliableAndDiverse, SelectAll, Selector
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

__all__ = [
    "Assignment",
    "BelowMeanEntropy",
    "ClusteringAdapter",
    "FisherPenalty",
    "Fuse",
    "GaussianNoise",
    "Loss",
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
    "selected_mean",
    "similarity",
    "softmax_entropy",
    "vertical_flip",
]
