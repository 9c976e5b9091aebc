"""Small striped domains and complete protocols on them."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.conftest import CLASSES, labelled_images
from ttc.bench import Protocol, Row, Spec, Store
from ttc.bench.method_specs import options_json, with_defaults
from ttc.bench.workload import ResolvedWorkload, Workload
from ttc.data import ArrayImages
from ttc.data.images import Images


def domain(count: int = 60, seed: int = 2, gain: float = 0.6, shift: float = 0.1) -> ArrayImages:
    """Striped images, darker and shifted, as uint8 (N, 8, 8, 3)."""
    images, labels = labelled_images(count, 1.2, seed)
    pixels = ((images * gain + shift).clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).numpy()
    return ArrayImages(f"stripes {seed}", np.ascontiguousarray(pixels), labels.numpy(), CLASSES)


def protocol(method: str = "tent", **changes: Any) -> Protocol:
    """A protocol with every field, some of them changed."""
    spec = with_defaults(Spec.read(method))
    values: dict[str, Any] = {
        "dataset": "stripes",
        "data_checksum": "d",
        "model": "small",
        "model_checksum": "m",
        "method": spec.name,
        "options": options_json(spec),
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


def make_row(
    method: str = "tent", fraction: float = 0.5, seed: int = 0, corruption: str = "fog", **changes: object
) -> Row:
    """A recorded cell of 80 images."""
    correct = np.random.default_rng([seed, int(100 * fraction), len(corruption)]).random(80) < fraction
    values = {
        "protocol": protocol(method, seed=seed, corruptions=(corruption,), data_checksum=corruption),
        "status": "finished",
        "figures": {"accuracy": float(correct.mean()), "nll": 1 - fraction, "ece": 0.1, "per_class": [None, 0.5]},
        "cost": {
            "forwards": 1.0,
            "backwards": 1.0,
            "median_ms": 5.0,
            "p95_ms": 6.0,
            "peak_memory_mb": 1.0,
            "trainable": 4,
        },
        "warnings": (),
        "error": None,
        "environment": {"torch": "2"},
        "seconds": 1.0,
        "recorded": "now",
        "trace": np.array([[80, 0.5, 0.1, np.nan, np.nan, 0.2]], np.float32),
        "predictions": np.zeros(80, np.uint16),
        "correct": correct,
        "label": method,
    }
    return Row(**{**values, **changes})  # type: ignore[arg-type]


class CountedImages:
    """A domain that counts how many images were read."""

    def __init__(self, images: Images) -> None:
        self.images, self.read, self.most = images, 0, 0
        self.name, self.labels, self.num_classes, self.checksum = "counted", images.labels, 4, images.checksum

    def __len__(self) -> int:
        return len(self.images)

    def pixels(self, indices: Any) -> Any:
        self.read += len(indices)
        self.most = max(self.most, len(indices))
        return self.images.pixels(indices)


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


BUILDERS = """
import torch

from ttc.core import Adapter
from ttc.errors import TTCError
from ttc.nn import frozen_copy


class Sharp(Adapter):
    def __init__(self, model, temperature):
        super().__init__(model)
        self.temperature = temperature

    def adapt(self, x):
        return self.model(x).logits / self.temperature


def sharp(model, *, temperature: float = 1.0, loss=torch.nn.functional.mse_loss):
    return Sharp(frozen_copy(model), temperature)


def demanding(model, *, temperature: float):
    return Sharp(frozen_copy(model), temperature)


class Failing(Adapter):
    def adapt(self, x):
        raise TTCError("the model's outputs for this batch are not finite; check the range of the images")


def failing(model):
    return Failing(frozen_copy(model))


def wrong(model):
    return 5


number = 3
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with images of three classes, a module with small networks, and the data root."""
    made_place(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # worker processes inherit it
    monkeypatch.setenv("TTC_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_methods", raising=False)  # another test's directory
    return tmp_path


def made_place(path: Path, per_class: int = 12) -> None:
    random = np.random.default_rng(0)
    (path / "small_nets.py").write_text(NETS)
    (path / "own_methods.py").write_text(BUILDERS)
    for label, colour in enumerate(("blue", "green", "red")):
        folder = path / "photos" / colour
        folder.mkdir(parents=True)
        for number in range(per_class):
            pixels = random.integers(0, 200, (16, 16, 3), dtype=np.uint8)
            pixels[..., label] += np.uint8(50)
            Image.fromarray(pixels).save(folder / f"{number:02}.png")


def workload(model: str = "small_nets:small", dataset: str = "imagefolder:photos", **changes: Any) -> ResolvedWorkload:
    return Workload(dataset, model, **changes).resolve()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "new" / "results.sqlite") as opened:
        yield opened
