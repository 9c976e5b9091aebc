"""Small striped domains and complete protocols on them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.conftest import CLASSES, labelled_images
from ttc.bench import Protocol, Spec
from ttc.bench.method_specs import complete, options_text
from ttc.bench.workload import Workload
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


NETS = """
import torch
from torch import nn


def small(num_classes=3):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        body = [nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()]
        return nn.Sequential(*body, nn.Linear(24, num_classes))


def few():
    return small(2)


def plain(num_classes=3):
    return nn.Sequential(nn.Flatten(), nn.Linear(16 * 16 * 3, num_classes))
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with pictures of three classes, a module with small networks, and the data root."""
    made_place(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # worker processes take it over
    monkeypatch.setenv("TTC_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made_place(path: Path, per_class: int = 12) -> None:
    random = np.random.default_rng(0)
    (path / "small_nets.py").write_text(NETS)
    for label, colour in enumerate(("blue", "green", "red")):
        folder = path / "pictures" / colour
        folder.mkdir(parents=True)
        for number in range(per_class):
            pixels = random.integers(0, 200, (16, 16, 3), dtype=np.uint8)
            pixels[..., label] += np.uint8(50)
            Image.fromarray(pixels).save(folder / f"{number:02}.png")


def workload(model: str = "small_nets:small", dataset: str = "folder:pictures", **changes: Any) -> Workload:
    return Workload(dataset, model, **changes)
