"""Test-time adaptation as clustering: adapt a trained image classifier to the data it meets.

>>> import torch, ttc
>>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
...                             torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 10))
>>> adapter = ttc.adapt(model, "ttc")
>>> logits = adapter(torch.rand(16, 3, 32, 32))  # adapts as it predicts
>>> adapter.reset()
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ttc.errors import TTCError

if TYPE_CHECKING:
    from ttc import bench, clustering, core, deploy, methods, models
    from ttc.core import Adapter, Classifier, Inspection, Prediction, inspect
    from ttc.deploy import Guard, Stream
    from ttc.methods import METHODS, adapt, load_adaptation

__version__ = "0.1.0"
__all__ = [
    "METHODS",
    "Adapter",
    "Classifier",
    "Guard",
    "Inspection",
    "Prediction",
    "Stream",
    "TTCError",
    "adapt",
    "bench",
    "clustering",
    "core",
    "deploy",
    "inspect",
    "load_adaptation",
    "methods",
    "models",
]

_HOMES = {
    "METHODS": "ttc.methods",
    "adapt": "ttc.methods",
    "load_adaptation": "ttc.methods",
    "Adapter": "ttc.core",
    "Classifier": "ttc.core",
    "Inspection": "ttc.core",
    "Prediction": "ttc.core",
    "inspect": "ttc.core",
    "Guard": "ttc.deploy",
    "Stream": "ttc.deploy",
}
_ROOMS = {"bench", "clustering", "core", "corruptions", "data", "deploy", "methods", "models"}


def __getattr__(name: str) -> object:
    """Import on first use: torch takes seconds, and ``ttc --help`` does not need it."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _ROOMS:
        return import_module(f"ttc.{name}")
    raise AttributeError(f"module 'ttc' has no attribute '{name}'")
