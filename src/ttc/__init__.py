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
    from ttc import bench as bench
    from ttc import clustering as clustering
    from ttc import core as core
    from ttc import corruptions as corruptions
    from ttc import data as data
    from ttc import deploy as deploy
    from ttc import fast as fast
    from ttc import methods as methods
    from ttc import models as models
    from ttc import nn as nn
    from ttc.core import Adapter, Classifier, Part, Prediction, inspect
    from ttc.deploy import Guard, Stream, distributed
    from ttc.methods import METHODS, Method, adapt, load_adaptation, register

__version__ = "0.9.0"
__all__ = [
    "METHODS",
    "Adapter",
    "Classifier",
    "Guard",
    "Method",
    "Part",
    "Prediction",
    "Stream",
    "TTCError",
    "adapt",
    "distributed",
    "inspect",
    "load_adaptation",
    "register",
]

_DEFINED_IN = {
    "METHODS": "ttc.methods",
    "Method": "ttc.methods",
    "adapt": "ttc.methods",
    "load_adaptation": "ttc.methods",
    "register": "ttc.methods",
    "Adapter": "ttc.core",
    "Classifier": "ttc.core",
    "Part": "ttc.core",
    "Prediction": "ttc.core",
    "inspect": "ttc.core",
    "Guard": "ttc.deploy",
    "Stream": "ttc.deploy",
    "distributed": "ttc.deploy",
}
_SUBPACKAGES = ("bench", "clustering", "core", "corruptions", "data", "deploy", "fast", "methods", "models", "nn")


def __getattr__(name: str) -> object:
    """Import on first use: torch takes seconds, and ``ttc --help`` does not need it."""
    if name in _DEFINED_IN:
        return getattr(import_module(_DEFINED_IN[name]), name)
    if name in _SUBPACKAGES:
        return import_module(f"ttc.{name}")
    raise AttributeError(f"module 'ttc' has no attribute '{name}'")


def __dir__() -> list[str]:
    """List the public names, for completion, without importing them."""
    return sorted([*__all__, *_SUBPACKAGES, "__version__"])
