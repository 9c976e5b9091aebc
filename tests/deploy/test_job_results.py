"""What a job writes: rows, events, checkpoints that are due, and the summary of what stands in the files."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import ttc
from ttc.core import Event
from ttc.data import ArrayImages
from ttc.deploy import InputImages, job_results
from ttc.deploy.job_folder import JobFolder
from ttc.deploy.job_results import ResultWriter, summarize_predictions

IMAGES = InputImages(
    ArrayImages("array", np.zeros((4, 8, 8, 3), np.uint8), np.array([0, 1, 0, 1]), 2),
    [f"image {i}" for i in range(4)],
    ("cat", "dog"),
    labelled=True,
)
LOGITS = torch.tensor([[2.0, 0.0], [2.0, 0.0]])


def test_rows_after_the_last_checkpoint_are_written_again(
    model: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, adapter = JobFolder(tmp_path, {"method": "tent"}, 4), ttc.adapt(model, "tent")
    monkeypatch.setattr(job_results, "CHECKPOINT_SECONDS", 0.0)
    with ResultWriter(folder, IMAGES, folder.read_progress()) as writer:
        writer.write_predictions([0, 1], LOGITS)
        writer.write_event(Event(2, "freeze", "requested"))
        writer.done = 2
        writer.save_checkpoint_if_due(adapter)
        writer.write_predictions([2, 3], LOGITS)  # and the process ends before the next checkpoint
    with ResultWriter(folder, IMAGES, folder.read_progress()) as writer:
        assert writer.done == 2
        writer.write_predictions([3, 2], LOGITS)
        writer.done = 4
        writer.save_checkpoint_if_due(adapter)
    lines = folder.predictions.read_text().splitlines()
    assert lines[0] == "path,class,probability,entropy,label"
    assert [line.split(",")[0] for line in lines[1:]] == ["image 0", "image 1", "image 3", "image 2"]
    assert [json.loads(line)["action"] for line in folder.events.read_text().splitlines()] == ["freeze"]
    summary = summarize_predictions(folder, IMAGES, adapter, {})
    assert summary == writer.summary
    assert summary == {
        "images": 4,
        "mean_probability": round(float(LOGITS.double().softmax(1).max()), 4),
        "mean_entropy": summary["mean_entropy"],
        "predicted_classes": {"cat": 4},
        "accuracy": 0.5,
    }


def test_a_checkpoint_is_saved_when_it_is_due(model: nn.Module, tmp_path: Path) -> None:
    folder, adapter = JobFolder(tmp_path, {"method": "tent"}, 4), ttc.adapt(model, "tent")
    with ResultWriter(folder, IMAGES, folder.read_progress()) as writer:
        writer.done = 2
        writer.save_checkpoint_if_due(adapter)
        assert folder.read_progress().done == 0  # the last one is seconds old
        writer.write_predictions([0, 1, 2, 3], LOGITS.repeat(2, 1))
        writer.done = 4
        writer.save_checkpoint_if_due(adapter)
        assert folder.read_progress().done == 4


def test_a_complete_job_has_its_summary_whenever_it_is_killed(
    model: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, adapter = JobFolder(tmp_path, {"method": "tent"}, 4), ttc.adapt(model, "tent")

    def interrupt(progress: object) -> None:
        raise KeyboardInterrupt

    with ResultWriter(folder, IMAGES, folder.read_progress()) as writer:
        writer.write_predictions([0, 1, 2, 3], LOGITS.repeat(2, 1))
        writer.done = 4
        monkeypatch.setattr(folder, "write_progress", interrupt)
        with pytest.raises(KeyboardInterrupt):
            writer.save_checkpoint_if_due(adapter)
    assert json.loads(folder.summary.read_text())["images"] == 4
    assert folder.read_progress().done == 0
