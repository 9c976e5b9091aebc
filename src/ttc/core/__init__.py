"""The contract: adapters, classifiers, their state and how it is saved. Imports torch and nothing else of ttc."""

from ttc.core.adapter import Adapter, require_finite
from ttc.core.adapter_config import AdapterConfig
from ttc.core.adapter_module import AdapterModule
from ttc.core.callbacks import BatchRecord, Callback, CallbackList, Event
from ttc.core.checkpoint import SavedAdaptation
from ttc.core.checkpoint import read as read_adaptation
from ttc.core.classifier import Classifier, Prediction, find_head
from ttc.core.draws import seeded_generator
from ttc.core.exported import ExportedClassifier, ExportParts
from ttc.core.inspection import Inspection, inspect
from ttc.core.interface import InputNormalization, ModelInterface
from ttc.core.part import Part, SmallBatches
from ttc.core.predict_only import PredictOnly
from ttc.core.processes import LostProcessError, Processes
from ttc.core.running import Run, RunSummary
from ttc.core.state import Snapshot
from ttc.core.statistics import freeze_statistics

__all__ = [
    "Adapter",
    "AdapterConfig",
    "AdapterModule",
    "BatchRecord",
    "Callback",
    "CallbackList",
    "Classifier",
    "Event",
    "ExportParts",
    "ExportedClassifier",
    "InputNormalization",
    "Inspection",
    "LostProcessError",
    "ModelInterface",
    "Part",
    "PredictOnly",
    "Prediction",
    "Processes",
    "Run",
    "RunSummary",
    "SavedAdaptation",
    "SmallBatches",
    "Snapshot",
    "find_head",
    "freeze_statistics",
    "inspect",
    "read_adaptation",
    "require_finite",
    "seeded_generator",
]
