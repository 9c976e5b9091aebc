import json
from pathlib import Path

import torch
from safetensors import safe_open

from ttc.files import checksum
from ttc.models import build
from ttc.models.card import ModelCard, accuracy, card_markdown, save_weights, write_card


def card(corruptions: dict[str, dict[str, float]]) -> ModelCard:
    return ModelCard(
        model="resnet20",
        dataset="CIFAR-10",
        num_classes=10,
        statistics="cifar10",
        parameters=269_722,
        recipe={"epochs": 3, "peak_lr": 0.2},
        clean_accuracy=0.9123,
        clean_images=10_000,
        corruptions=corruptions,
        severity=5,
        corrupted_images=2000,
        batch_size=100,
        weights="w.safetensors",
        sha256="ab" * 32,
        data_checksum="cd" * 32,
        versions={"ttc": "1", "torch": "2"},
    )


def test_accuracy_counts_images_not_batches() -> None:
    batches = [(torch.eye(2), torch.tensor([0, 1])), (torch.eye(2)[:1], torch.tensor([1]))]
    assert accuracy(lambda x: x, batches) == 2 / 3


def test_saved_weights_load_and_the_checksum_is_that_of_the_file(tmp_path: Path) -> None:
    model = build("resnet20").to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    digest = save_weights(model, tmp_path / "w.safetensors", {"model": "resnet20"})
    assert digest == checksum(tmp_path / "w.safetensors")
    again = build("resnet20", checkpoint=tmp_path / "w.safetensors")
    for key, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[key]), key
    with safe_open(tmp_path / "w.safetensors", "pt") as file:
        assert file.metadata() == {"model": "resnet20"}


def test_the_card_is_written_for_both_readers(tmp_path: Path) -> None:
    rows = {"fog": {"source": 0.5, "norm": 0.75}, "snow": {"source": 0.25, "norm": 0.65}}
    paths = write_card(card(rows), tmp_path)
    assert [path.name for path in paths] == ["card.json", "card.md"]
    assert ModelCard(**json.loads(paths[0].read_text())) == card(rows)
    page = paths[1].read_text()
    for expected in (
        "# resnet20 on CIFAR-10",
        "**91.23%** of 10,000",
        "| fog | 50.0 | 75.0 |",
        "| **mean** | 37.5 | 70.0 |",
    ):
        assert expected in page
    assert "ab" * 32 in page


def test_a_card_without_corruptions_has_no_table() -> None:
    assert "SOURCE" not in card_markdown(card({}))
