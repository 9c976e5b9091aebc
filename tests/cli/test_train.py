import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from ttc.cli.app import app
from ttc.errors import TTCError
from ttc.models import build


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """CIFAR-10's layout with a few records: a bright class and a dark one, reported apart at once."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "data" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for name in [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]:
        labels = np.arange(16) % 2
        pixels = rng.integers(0, 60, (16, 3072)) + 180 * labels[:, None]
        (folder / name).write_bytes(np.column_stack([labels, pixels]).astype(np.uint8).tobytes())
    return tmp_path / "data"


def run(root: Path, *arguments: object) -> str:
    options = ["train", "--data", root, "--model", "wrn-16-1", "--epochs", 2, "--batch-size", 20, "--lr", 0.05]
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(a) for a in [*options, *arguments]])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return f"{result.exit_code} {result.output}"


def test_weights_checkpoint_and_card(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    output = run(root, "--no-corruptions")
    folder = tmp_path / "trained" / "wrn-16-1-cifar10-0"
    assert sorted(path.name for path in folder.iterdir()) == [
        "card.json",
        "card.md",
        "training.pt",
        "wrn-16-1.safetensors",
    ]
    assert "epoch 2/2, loss" in output
    assert "to use it: --model wrn-16-1 --checkpoint trained/wrn-16-1-cifar10-0/wrn-16-1.safetensors" in output
    card = json.loads((folder / "card.json").read_text())
    assert (card["statistics"], card["clean_images"], card["recipe"]["epochs"]) == ("none", 16, 2)
    assert card["corruptions"] == {}
    model = build("wrn-16-1", checkpoint=folder / "wrn-16-1.safetensors")
    state = torch.load(folder / "training.pt", weights_only=True)["state_dict"]
    assert all(
        torch.equal(value, state[key]) for key, value in model.named_parameters()
    )  # statistics are settled after
    again = run(root, "--no-corruptions")
    assert "resuming from trained/wrn-16-1-cifar10-0/training.pt" in again
    assert "epoch" not in again  # only loaded, not trained again
    for reported in (output, again):
        assert "computing the BatchNorm statistics over all training images" in reported


def test_the_card_measures_under_corruption(root: Path, tmp_path: Path) -> None:
    names = pytest.importorskip("ttc.corruptions").CORRUPTIONS
    run(root, "--out", tmp_path / "out", "--card-images", 12)
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert list(card["corruptions"]) == list(names)
    assert card["corrupted_images"] == 12
    assert all(0 <= row[method] <= 1 for row in card["corruptions"].values() for method in ("source", "norm"))
    assert "| gaussian_noise |" in (tmp_path / "out" / "card.md").read_text()


def test_an_interruption_says_how_to_resume(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ttc.models.training._save", interrupted)
    output = run(root, "--out", tmp_path / "out", "--no-corruptions")
    assert output.startswith("130")
    assert "interrupted; no epoch was finished\nto resume: run the same command again" in output


def test_mistakes(root: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "out", "--no-corruptions")
    with pytest.raises(TTCError, match="epochs must be at least 1, got 0"):
        run(root, *out, "--epochs", 0)
    with pytest.raises(TTCError, match=r"unknown architecture 'resnet21' .*choose from: resnet20"):
        run(root, *out, "--model", "resnet21")
    with pytest.raises(TTCError, match=r"unknown architecture 'foo'"):
        run(tmp_path / "no-data", *out, "--model", "foo")
    with pytest.raises(TTCError, match=r"the device 'toaster' is not available .*try --device cpu"):
        run(root, *out, "--device", "toaster")
    with pytest.raises(TTCError, match=r"CIFAR-100 \(train.bin\) was not found at .*ttc data fetch cifar100"):
        run(root, *out, "--dataset", "cifar100")
    for count in (0, 10**9):
        with pytest.raises(TTCError, match=r"CIFAR-10 test, own copy has 16 images, .* requested: choose 1 to 16"):
            run(root, "--out", tmp_path / "out", "--card-images", count)
    (tmp_path / "file").write_text("")
    with pytest.raises(TTCError, match=r"cannot write to .*file"):
        run(root, "--out", tmp_path / "file" / "out", "--no-corruptions")
