"""The contract: adapters, classifiers, normalization modes, private copies, snapshots."""

from ttc.core.adapter import Adapter, finite
from ttc.core.classifier import Classifier, Prediction, find_head
from ttc.core.inspection import Inspection, inspect
from ttc.core.preparation import frozen, norm_tunable
from ttc.core.saving import Recipe, SavedAdaptation
from ttc.core.saving import read as read_adaptation
from ttc.core.snapshot import Snapshot

__all__ = [
    "Adapter",
    "Classifier",
    "Inspection",
    "Prediction",
    "Recipe",
    "SavedAdaptation",
    "Snapshot",
    "find_head",
    "finite",
    "frozen",
    "inspect",
    "norm_tunable",
    "read_adaptation",
]
