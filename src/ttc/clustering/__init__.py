"""The paper's view: entropy-based adaptation as clustering, one A-step and one U-step per batch."""

from ttc.clustering.assignment import (
    Assignment,
    Fuse,
    assign,
    first_view,
    mean_of_probabilities,
    mean_of_views,
)
from ttc.clustering.augmix import augmix
from ttc.clustering.cycle import ClusteringAdapter, Step
from ttc.clustering.losses import Diversity, Loss, SimilarityPreserving, entropy, similarity
from ttc.clustering.memory import StoredNeighbour
from ttc.clustering.selection import BelowMeanEntropy, ClassBalanced, NotSingle, ReliableAndDiverse, SelectAll, Selector
from ttc.clustering.supports import Supports, initial_supports, prototype_cosines, supports_per_class
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
    "BelowMeanEntropy",
    "ClassBalanced",
    "ClusteringAdapter",
    "Diversity",
    "Fuse",
    "GaussianNoise",
    "Loss",
    "NotSingle",
    "OptimizerFactory",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomView",
    "ReliableAndDiverse",
    "SelectAll",
    "Selector",
    "SimilarityPreserving",
    "Step",
    "StoredNeighbour",
    "Supports",
    "Updater",
    "View",
    "assign",
    "augmix",
    "batch_mean",
    "batches_for",
    "default_optimizer",
    "entropy",
    "first_view",
    "horizontal_flip",
    "identity",
    "in_input_units",
    "initial_supports",
    "mean_of_probabilities",
    "mean_of_views",
    "prototype_cosines",
    "selected_mean",
    "similarity",
    "softmax_entropy",
    "supports_per_class",
    "vertical_flip",
]
