"""The paper's view: entropy-based adaptation as clustering, one A-step and one U-step per batch."""

from ttc.clustering.adversarial_augmentation import AugmentationPolicy
from ttc.clustering.assignment import (
    Assignment,
    Fuse,
    assign,
    first_view,
    mean_of_probabilities,
    mean_of_views,
)
from ttc.clustering.augmix import augmix
from ttc.clustering.balance import ConfidenceWeights, WindowedDiversity
from ttc.clustering.batch_augmentation import BatchAugmentation, Normalize
from ttc.clustering.class_prior import ClassPrior, correct_logits
from ttc.clustering.contrast import contrastive_loss
from ttc.clustering.cycle import ClusteringAdapter, Step
from ttc.clustering.losses import Diversity, Loss, SimilarityPreserving, conservative_entropy, entropy, similarity
from ttc.clustering.memory import BalancedMemory
from ttc.clustering.penalty import FisherPenalty, Penalty
from ttc.clustering.selection import BelowMeanEntropy, ClassBalanced, NotSingle, ReliableAndDiverse, SelectAll, Selector
from ttc.clustering.stored_neighbour import StoredNeighbour
from ttc.clustering.strong_view import strong_view
from ttc.clustering.supports import Supports, initial_supports, plausible_rows, prototype_cosines, supports_per_class
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
    random_flip,
    random_resized_crop,
    vertical_flip,
)
from ttc.core.entropy import softmax_entropy

__all__ = [
    "Assignment",
    "AugmentationPolicy",
    "BalancedMemory",
    "BatchAugmentation",
    "BelowMeanEntropy",
    "ClassBalanced",
    "ClassPrior",
    "ClusteringAdapter",
    "ConfidenceWeights",
    "Diversity",
    "FisherPenalty",
    "Fuse",
    "GaussianNoise",
    "Loss",
    "Normalize",
    "NotSingle",
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
    "StoredNeighbour",
    "Supports",
    "Updater",
    "View",
    "WindowedDiversity",
    "assign",
    "augmix",
    "batch_mean",
    "batches_for",
    "conservative_entropy",
    "contrastive_loss",
    "correct_logits",
    "default_optimizer",
    "entropy",
    "first_view",
    "horizontal_flip",
    "identity",
    "in_input_units",
    "initial_supports",
    "mean_of_probabilities",
    "mean_of_views",
    "plausible_rows",
    "prototype_cosines",
    "random_flip",
    "random_resized_crop",
    "restore_randomly_",
    "selected_mean",
    "similarity",
    "soft_cross_entropy",
    "softmax_entropy",
    "strong_view",
    "supports_per_class",
    "symmetric_cross_entropy",
    "update_average_",
    "vertical_flip",
]
