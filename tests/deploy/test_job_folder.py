"""The results folder of a job: its progress, and what is rejected instead of overwritten."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.deploy import Guard
from ttc.deploy.job_folder import JobFolder, Progress

SETTINGS = {"model": "small", "seed": 0}


def test_progress_is_read_back(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "job", SETTINGS, 30)
    assert folder.read_progress() == Progress(0, {})
    folder.write_progress(Progress(16, {"predictions.csv": 99}))
    assert JobFolder(tmp_path / "job", SETTINGS, 30).read_progress() == Progress(16, {"predictions.csv": 99})


def test_files_of_another_job_are_rejected(tmp_path: Path) -> None:
    JobFolder(tmp_path / "job", SETTINGS, 30).write_progress(Progress(16, {}))
    with pytest.raises(ttc.TTCError, match=r"contains another run \(different: seed\); choose another folder"):
        JobFolder(tmp_path / "job", {**SETTINGS, "seed": 1}, 30).read_progress()
    with pytest.raises(ttc.TTCError, match=r"contains another run \(different: the number of images\)"):
        JobFolder(tmp_path / "job", SETTINGS, 31).read_progress()
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ttc.TTCError, match="contains other files; choose another folder with --out"):
        JobFolder(tmp_path, SETTINGS, 30).read_progress()


def test_a_process_killed_as_it_claimed_the_folder_leaves_it_free(tmp_path: Path) -> None:
    (tmp_path / ".progress.json.x1y2.part.json").touch()
    folder = JobFolder(tmp_path, SETTINGS, 30)
    assert folder.read_progress() == Progress(0, {})
    folder.write_progress(Progress(8, {}))
    assert [path.name for path in tmp_path.iterdir()] == ["progress.json"]


def test_a_run_that_saved_nothing_leaves_the_folder_free(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "job", SETTINGS, 30)
    folder.write_progress(Progress(0, {}))
    other = JobFolder(tmp_path / "job", {**SETTINGS, "seed": 1}, 31)
    assert other.read_progress() == Progress(0, {})
    (folder.path / "adaptation-8.safetensors").touch()  # of a checkpoint that was not finished
    folder.remove_if_unused()
    assert not folder.path.exists()
    folder.write_progress(Progress(8, {}, {"a.jpg": "truncated"}))
    folder.remove_if_unused()
    assert folder.read_progress().skipped == {"a.jpg": "truncated"}


def test_a_run_of_version_0_1_is_complete_or_rejected(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path, SETTINGS, 30)
    earlier = {"job": SETTINGS, "total": 30, "done": 16, "sizes": {}}  # as 0.1 wrote it
    (tmp_path / "progress.json").write_text(json.dumps(earlier))
    with pytest.raises(ttc.TTCError, match="an interrupted run of another version of ttc, which cannot be resumed"):
        folder.read_progress()
    (tmp_path / "progress.json").write_text(json.dumps({**earlier, "done": 30}))
    assert folder.read_progress().done == 30


@pytest.mark.parametrize("guarded", [True, False])
def test_a_checkpoint_replaces_the_one_before(
    guarded: bool, model: nn.Module, stream: list[Tensor], tmp_path: Path
) -> None:
    def make() -> Guard | ttc.Adapter:
        adapter = ttc.adapt(model, "tent")
        return Guard(adapter) if guarded else adapter

    folder = JobFolder(tmp_path, SETTINGS, 30)
    for path in (folder.predictions, folder.events):
        path.touch()
    first, second = make(), make()
    for done, batch in ((8, stream[0]), (16, stream[1])):
        first(batch)
        folder.save_checkpoint(first, done)
    names = {"adaptation-16.safetensors", "progress.json", "predictions.csv", "events.jsonl"}
    assert {path.name for path in tmp_path.iterdir()} == names | ({"guard-16.pt"} if guarded else set())
    folder.load_checkpoint(second, folder.read_progress().done)
    assert torch.equal(first(stream[2]), second(stream[2]))
    if isinstance(first, Guard) and isinstance(second, Guard):
        assert first.stats == second.stats
    folder.save_checkpoint(first, 30)
    assert {path.name for path in tmp_path.iterdir()} == {
        "adaptation.safetensors",
        *names - {"adaptation-16.safetensors"},
    }
