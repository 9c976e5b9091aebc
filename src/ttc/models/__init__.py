"""Source models: architectures, checkpoints, training."""

from ttc.models.building import build
from ttc.models.checkpoints import load_checkpoint
from ttc.models.embedded_model import embedded, embedded_card
from ttc.models.zoo import INPUT_STATISTICS, MODELS

__all__ = ["INPUT_STATISTICS", "MODELS", "build", "embedded", "embedded_card", "load_checkpoint"]
