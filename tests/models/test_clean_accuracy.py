"""The clean accuracy beside the published one, and what is tried when it is far too low."""

from pathlib import Path

import pytest
import torch

from ttc.data import embedded, subset
from ttc.models import embedded as embedded_model
from ttc.models.clean_accuracy import (
    CleanAccuracy,
    better_settings,
    fitting_variants,
    measure_accuracy,
    published_accuracy,
)
from ttc.models.zoo import MODELS


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    torch.save(embedded_model().state_dict(), tmp_path / "w.pt")
    return tmp_path / "w.pt"


def test_the_embedded_model_reaches_its_published_accuracy() -> None:
    images = subset(embedded(), 200)
    published = published_accuracy("embedded", "embedded", 10)
    found = measure_accuracy(embedded_model(), images, published)
    with torch.no_grad():
        predicted = embedded_model()(torch.tensor(images.pixels(range(200))).permute(0, 3, 1, 2) / 255).argmax(1)
    assert found.accuracy == pytest.approx(float((predicted.numpy() == images.labels).mean()))
    assert not found.is_too_low
    assert f"of 200 images; published {published:.2%}, so expected" in str(found)


@pytest.mark.parametrize(
    ("accuracy", "count", "classes", "published", "low"),
    [
        (0.71, 10_000, 100, 0.7263, False),
        (0.60, 10_000, 100, 0.7263, True),
        (0.60, 100, 100, 0.7263, False),  # within the sampling error of so few images
        (0.02, 100, 1000, 0.749, True),
        (0.30, 1000, 10, None, False),
        (0.11, 1000, 10, None, True),
    ],
)
def test_far_too_low(accuracy: float, count: int, classes: int, published: float | None, low: bool) -> None:
    assert CleanAccuracy(accuracy, count, classes, published).is_too_low == low


def test_published_accuracies_follow_the_dataset() -> None:
    assert published_accuracy("resnet56-b", "cifar100:/somewhere", 100) == MODELS["resnet56-b"].accuracies["cifar100"]
    assert published_accuracy("imagenet-resnet50-original", "imagefolder:photos", 1000) == 0.749
    assert published_accuracy("imagenet-resnet50-original", "imagefolder:photos", 7) is None
    assert published_accuracy("timm:vit", "imagenet", 1000) is None
    assert published_accuracy("embedded", "cifar100", 100) is None


def test_other_statistics_are_tried(weights: Path) -> None:
    images = subset(embedded(), 100)
    settings = better_settings("resnet20", weights, images, found=0.1)
    assert "the input statistics 'cifar10'" in [name for name, _ in settings]
    assert "the input statistics 'caffe'" not in [name for name, _ in settings]
    assert [value for _, value in settings] == sorted((value for _, value in settings), reverse=True)
    assert better_settings("resnet20", weights, images, found=0.99) == []
    assert better_settings("timm:vit", weights, images, found=0.1) == []


def test_variants(tmp_path: Path, weights: Path) -> None:
    assert fitting_variants("resnet20", weights) == []
    torch.save(MODELS["imagenet-resnet50"](num_classes=2).state_dict(), tmp_path / "r50.pt")
    assert fitting_variants("imagenet-resnet50-original", tmp_path / "r50.pt") == ["imagenet-resnet50"]
    assert fitting_variants("resnet20", None) == []
