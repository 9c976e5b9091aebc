"""Source models: architectures, checkpoints, training."""

from ttc.models.building import build
from ttc.models.embedded_model import embedded, embedded_card
from ttc.models.external import StandardizedModel
from ttc.models.model_input import ModelInput, model_input, open_fitted
from ttc.models.weight_files import load_checkpoint
from ttc.models.zoo import INPUT_STATISTICS, MODELS

__all__ = [
    "INPUT_STATISTICS",
    "MODELS",
    "ModelInput",
    "StandardizedModel",
    "build",
    "embedded",
    "embedded_card",
    "load_checkpoint",
    "model_input",
    "open_fitted",
]
