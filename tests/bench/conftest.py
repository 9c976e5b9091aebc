"""Small striped domains and complete protocols on them."""

from typing import Any

import numpy as np

from tests.conftest import CLASSES, labelled_images
from ttc.bench import Protocol, Spec
from ttc.bench.adapters import complete, options_text
from ttc.data import ArrayImages


def domain(count: int = 60, seed: int = 2, gain: float = 0.6, shift: float = 0.1) -> ArrayImages:
    """Striped images, darker and shifted, as uint8 (N, 8, 8, 3)."""
    images, labels = labelled_images(count, 1.2, seed)
    pixels = ((images * gain + shift).clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).numpy()
    return ArrayImages(f"stripes {seed}", np.ascontiguousarray(pixels), labels.numpy(), CLASSES)


def protocol(method: str = "tent", **changes: Any) -> Protocol:
    """A protocol with every field, some of them changed."""
    spec = complete(Spec.read(method))
    values: dict[str, Any] = {
        "dataset": "stripes",
        "data_checksum": "d",
        "model": "small",
        "model_checksum": "m",
        "method": spec.name,
        "options": options_text(spec),
        "corruptions": ("fog",),
        "severity": 5,
        "images": 60,
        "seed": 0,
        "batch_size": 24,
        "scenario": "per-domain",
        "optimizer": "Adam(lr=0.001)",
        "dtype": "float32",
        "device": "cpu",
        "threads": 1,
        "version": "0",
    }
    return Protocol(**{**values, **changes})
