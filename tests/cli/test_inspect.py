"""``ttc inspect`` as a user runs it."""

from pathlib import Path

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from ttc.cli.app import app
from ttc.errors import TTCError
from ttc.models import build, embedded


def shown(*words: str) -> str:
    result = CliRunner().invoke(app, ["inspect", *words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_a_zoo_model_is_described() -> None:
    text = shown("resnet20")
    assert "19 BatchNorm2d" in text
    assert "'linear', 64 features to 10 classes" in text
    assert "warning" not in text


def test_it_fits_a_narrow_terminal() -> None:
    words = ["inspect", "imagenet-resnet50", "--batch-size", "1"]
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, words, catch_exceptions=False)
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("warning               batch of one") for line in lines)


def test_a_batch_of_one_is_warned_of() -> None:
    assert "batch of one" in shown("resnet20", "--batch-size", "1")


def test_other_input_statistics() -> None:
    assert "19 BatchNorm2d" in shown("resnet20", "--statistics", "imagenet")
    with pytest.raises(TTCError, match=r"unknown input statistics 'imgnet' \(did you mean 'imagenet'\?\)"):
        CliRunner().invoke(app, ["inspect", "resnet20", "--statistics", "imgnet"], catch_exceptions=False)


def test_an_unknown_model_is_rejected() -> None:
    with pytest.raises(TTCError, match="unknown model 'resnet21'"):
        CliRunner().invoke(app, ["inspect", "resnet21"], catch_exceptions=False)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    torch.save(embedded().state_dict(), tmp_path / "w.pt")
    return tmp_path / "w.pt"


def test_the_clean_accuracy_is_measured(weights: Path) -> None:
    text = shown("resnet20", "--checkpoint", str(weights), "--data", "embedded", "--images", "100")
    assert "clean accuracy        " in text
    assert "of 100 images; published 91.73%" in text
    assert "CIFAR-10 test, first 2,000[:100], SHA-256 " in text
    assert "input                 RGB in [0, 1], 32 x 32, standardized with mean (0.4914" in text
    assert "warning" not in text


def test_wrong_input_statistics_are_suspected(weights: Path) -> None:
    """The network expects another scale than it gets: nothing fails, only the accuracy tells."""
    state = {key: value.clone() for key, value in embedded().state_dict().items()}
    state["conv1.weight"] *= 255
    torch.save(state, weights)
    text = shown("resnet20", "--checkpoint", str(weights), "--dataset", "embedded", "--images", "100")
    assert "warning               the clean accuracy is far too low; likely causes: other input statistics" in text


def test_random_weights_are_said_to_be_random() -> None:
    text = shown("resnet20", "--data", "embedded", "--images", "50")
    assert "the weights are random: give a trained model with --checkpoint" in text


def test_a_variant_with_the_same_parameters_is_named(tmp_path: Path) -> None:
    torch.save(build("imagenet-resnet50", num_classes=2).state_dict(), tmp_path / "w.pt")
    text = shown("imagenet-resnet50", "--checkpoint", str(tmp_path / "w.pt"))
    assert "also fits             imagenet-resnet50-original: RGB in [0, 1], 224 x 224" in text


def test_labels_must_fit_the_model(tmp_path: Path) -> None:
    (tmp_path / "photos" / "12").mkdir(parents=True)
    Image.new("RGB", (50, 40)).save(tmp_path / "photos" / "12" / "a.png")
    with pytest.raises(TTCError, match=r"has images of class 12, the model has the classes 0 to 9"):
        shown("embedded", "--data", f"imagefolder:{tmp_path / 'photos'}")
    (tmp_path / "photos" / "12").rename(tmp_path / "photos" / "1")
    assert "of 1 images" in shown("embedded", "--data", f"imagefolder:{tmp_path / 'photos'}")
    assert "10 classes, the model 100" in shown("resnet20-b", "--data", "embedded", *hundred(tmp_path))


def hundred(folder: Path) -> list[str]:
    torch.save(build("resnet20-b", num_classes=100).state_dict(), folder / "hundred.pt")
    return ["--checkpoint", str(folder / "hundred.pt")]
