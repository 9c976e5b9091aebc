"""Batch jobs as a library: run, resume, and the summary; tests/cli/test_adapt.py covers the command."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor, nn

import ttc
from ttc.data import ArrayImages
from ttc.deploy import AdaptationJob, Guard, InputImages, JobSettings, job_results

SETTINGS = JobSettings("small", "array", method="tent", batch_size=8, guard=False)


@pytest.fixture
def images(stream: list[Tensor]) -> InputImages:
    array = (stream[0].clamp(0, 1) * 255).byte().permute(0, 2, 3, 1).numpy()  # (24, 8, 8, 3)
    labels = np.arange(24, dtype=np.int64) % 4
    names = [f"image {i}" for i in range(24)]
    return InputImages(ArrayImages("array", array, labels, 4), names, ("north", "east", "south", "west"), labelled=True)


def test_a_job_writes_a_row_per_image_and_a_summary(model: nn.Module, images: InputImages, tmp_path: Path) -> None:
    seen: list[int] = []
    job = AdaptationJob(SETTINGS, images, tmp_path / "job")
    assert (job.done, job.total) == (0, 24)
    summary = job.run(ttc.adapt(model, "tent"), seen.append)
    assert seen == [8, 16, 24]
    assert job.done == 24
    with (tmp_path / "job" / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["path"] for row in rows) == sorted(images.names)
    assert {row["label"] for row in rows} == {"north", "east", "south", "west"}
    assert summary["accuracy"] == round(sum(row["class"] == row["label"] for row in rows) / 24, 4)
    assert sum(summary["predicted_classes"].values()) == 24
    saved = json.loads((tmp_path / "job" / "summary.json").read_text())
    assert saved["version"] == ttc.__version__
    assert saved["job"]["method"] == "tent"
    assert saved["mean_entropy"] == summary["mean_entropy"]


@pytest.mark.parametrize("guarded", [True, False])
def test_an_interrupted_job_resumes_with_the_same_results(
    guarded: bool, model: nn.Module, images: InputImages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_results, "CHECKPOINT_SECONDS", 0.0)
    settings = JobSettings("small", "array", method="tent", batch_size=8, guard=guarded)

    def stop(done: int) -> None:
        if done == 16:
            raise KeyboardInterrupt

    whole = AdaptationJob(settings, images, tmp_path / "whole").run(ttc.adapt(model, "tent"))
    job = AdaptationJob(settings, images, tmp_path / "parts")
    with pytest.raises(KeyboardInterrupt):
        job.run(ttc.adapt(model, "tent"), stop)
    assert job.done == 16
    assert AdaptationJob(settings, images, tmp_path / "parts").run(ttc.adapt(model, "tent")) == whole
    for name in ("predictions.csv", "events.jsonl", "summary.json"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert ("guard" in whole) == guarded


def test_the_guard_of_a_job_writes_its_events(
    model: nn.Module, images: InputImages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = Guard.__call__

    def freeze_first(guard: Guard, x: Tensor) -> Tensor:
        if guard.mode == "adapting":
            guard.freeze()
        return call(guard, x)

    monkeypatch.setattr(Guard, "__call__", freeze_first)
    settings = JobSettings("small", "array", method="tent", batch_size=8, shuffle=False)
    summary = AdaptationJob(settings, images, tmp_path).run(ttc.adapt(model, "tent"))
    event = {"images": 0, "action": "freeze", "reason": "requested"}
    assert [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()] == [event]
    assert (summary["guard"], summary["guard_events"]) == ("frozen", 1)


def test_a_folder_that_cannot_be_written_is_a_sentence(model: nn.Module, images: InputImages, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ttc.TTCError, match="cannot write to"):
        AdaptationJob(SETTINGS, images, tmp_path / "file" / "job").run(ttc.adapt(model, "tent"))
