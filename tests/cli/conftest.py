"""A folder of images and an untrained model for ``ttc adapt``."""

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from ttc.cli.app import app
from ttc.models import build

Run = Callable[..., str]


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    weights = build("resnet20", 3).state_dict()
    weights["linear.weight"] /= 100  # untrained, it would be certain of one class
    torch.save(weights, tmp_path / "weights.pt")
    return tmp_path / "weights.pt"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name in ("cat", "dog", "emu"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for i in range(10):
            pixels = rng.integers(0, 256, (32, 32, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pets" / name / f"{i}.png")
    return tmp_path / "pets"


@pytest.fixture
def run(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)

    def invoke(images: Path, *arguments: object, model: str = "resnet20") -> str:
        words = ["adapt", model, images, "--checkpoint", weights, "--batch-size", 8, *arguments]
        result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(word) for word in words])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return f"{result.exit_code} {result.output}"

    return invoke


def rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def damage(folder: Path) -> None:
    """Add what real folders have: damaged files, other sizes, other modes."""
    (folder / "cat" / "3b.jpg").write_bytes(b"not an image")
    (folder / "dog" / "0.png").write_bytes((folder / "dog" / "0.png").read_bytes()[:500])
    Image.new("L", (90, 50)).save(folder / "dog" / "grey.png")
