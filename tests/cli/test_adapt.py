"""``ttc adapt`` over folders and arrays: what it writes, how it resumes, what it rejects."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors import safe_open
from typer.testing import CliRunner

import ttc
from tests.cli.conftest import Run, rows
from ttc.cli.app import app
from ttc.core.drift import parameter_drift
from ttc.data import as_tensor
from ttc.deploy import batch_job, job_results
from ttc.deploy.job_folder import JobFolder, Progress
from ttc.errors import TTCError
from ttc.models import build


def test_predictions_summary_adaptation_and_events(run: Run, folder: Path, weights: Path) -> None:
    output = run(folder)
    results = Path("adapted/resnet20-pets")
    found = rows(results / "predictions.csv")
    assert list(found[0]) == ["path", "class", "probability", "entropy", "label"]
    assert {row["path"] for row in found} == {f"{name}/{i}.png" for name in ("cat", "dog", "emu") for i in range(10)}
    assert all(row["path"].startswith(row["label"]) for row in found)
    assert [row["label"] for row in found] != sorted(row["label"] for row in found)  # shuffled, not class after class
    summary = json.loads((results / "summary.json").read_text())
    right = sum(row["class"] == row["label"] for row in found)
    assert summary["accuracy"] == round(right / 30, 4)
    assert summary["images"] == 30
    assert sum(summary["predicted_classes"].values()) == 30
    events = (results / "events.jsonl").read_text().splitlines()
    assert summary["guard_events"] == len(events)
    adapter = ttc.load_adaptation(build("resnet20", checkpoint=weights), results / "adaptation.safetensors")
    assert adapter.config is not None
    assert adapter.config.method == "ttc"
    assert f"results in         {results}" in output
    assert f"{results} is complete; remove it to run again" in run(folder)


def interrupt_third_batch(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let a job save each batch and be interrupted after two; return the sizes of batches, as they come."""
    calls: list[int] = []

    def interrupted(pixels: NDArray[np.uint8]) -> torch.Tensor:
        calls.append(len(pixels))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return as_tensor(pixels)

    monkeypatch.setattr(job_results, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(batch_job, "as_tensor", interrupted)
    return calls


def test_processes_of_torchrun_resume_with_the_results_of_one(
    run: Run, folder: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--method", "tent", "--seed", "3", "--no-guard"]  # a guard learns nothing where the source is better
    run(folder, "--out", "one", *options)
    interrupt_third_batch(monkeypatch)
    assert "stopped: 16 of 30 images are saved in two" in run(folder, "--out", "two", *options)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "ttc"]
    words = ["adapt", "resnet20", folder, "--checkpoint", weights, "--batch-size", 8, "--out", "two", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    shown = subprocess.run(
        [*launch, *map(str, words)], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert shown.returncode == 0, shown.stderr
    assert shown.stderr.count("resuming after 16 of 30 images") == 1
    assert shown.stdout.count("results in         two") == 1
    expected, found = rows(Path("one/predictions.csv")), rows(Path("two/predictions.csv"))
    assert [row["path"] for row in found] == [row["path"] for row in expected]
    for row, other in zip(found, expected, strict=True):
        assert float(row["probability"]) == pytest.approx(float(other["probability"]), abs=1e-3)
    adapter = ttc.load_adaptation(build("resnet20", checkpoint=weights), "two/adaptation.safetensors")
    assert parameter_drift(adapter) > 0
    assert "two is complete" in run(folder, "--out", "two", *options)


@pytest.mark.parametrize("guard", ["--guard", "--no-guard"])
def test_it_resumes_after_an_interruption_with_the_same_results(
    guard: str, run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [guard, "--method", "tent"]
    run(folder, "--out", "whole", *options)
    calls = interrupt_third_batch(monkeypatch)
    output = run(folder, "--out", "parts", *options)
    assert output.startswith("130 ")
    assert "stopped: 16 of 30 images are saved in parts" in output
    with Path("parts/predictions.csv").open("a") as file:
        file.write("written after the checkpoint\n")
    if guard == "--guard":
        state = Path("parts/guard-16.pt").read_bytes()
        Path("parts/guard-16.pt").write_bytes(b"damaged")
        with pytest.raises(TTCError, match=r"cannot resume from parts/guard-16.pt; remove parts to start again"):
            run(folder, "--out", "parts", *options)
        Path("parts/guard-16.pt").write_bytes(state)
    assert "resuming after 16 of 30 images" in run(folder, "--out", "parts", *options)
    assert calls == [8, 8, 8, 8, 6]
    names = {"predictions.csv", "summary.json", "events.jsonl", "progress.json", "adaptation.safetensors"}
    assert {path.name for path in Path("parts").iterdir()} == names
    for name in ("predictions.csv", "summary.json", "events.jsonl"):
        assert Path("parts", name).read_bytes() == Path("whole", name).read_bytes()
    assert digest("parts") == digest("whole")


def digest(name: str) -> str:
    """Return the digest in the adaptation that a run saved."""
    with safe_open(f"{name}/adaptation.safetensors", "pt") as saved:
        return str(saved.metadata()["digest"])


@pytest.mark.parametrize("checkpoint", [1, 2, 4])
def test_a_kill_while_saving_a_checkpoint_loses_only_that_checkpoint(
    checkpoint: int, run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--guard", "--method", "tent"]
    run(folder, "--out", "whole", *options)
    monkeypatch.setattr(job_results, "CHECKPOINT_SECONDS", 0.0)
    write, calls = JobFolder.write_progress, []

    def killed(job_folder: JobFolder, progress: Progress) -> None:
        calls.append(progress.done)
        if len(calls) == 1 + checkpoint:  # the first is written before any image
            raise KeyboardInterrupt
        write(job_folder, progress)

    monkeypatch.setattr(JobFolder, "write_progress", killed)
    assert f"stopped: {(checkpoint - 1) * 8} of 30 images are saved in parts" in run(folder, "--out", "parts", *options)
    run(folder, "--out", "parts", *options)
    assert Path("parts/predictions.csv").read_bytes() == Path("whole/predictions.csv").read_bytes()
    assert digest("parts") == digest("whole")
    assert not [*Path("parts").glob("*-*")]


def test_an_interruption_before_the_first_checkpoint(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(pixels: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(batch_job, "as_tensor", interrupted)
        assert "stopped: 0 of 30 images" in run(folder)
    run(folder)
    assert len(rows(Path("adapted/resnet20-pets/predictions.csv"))) == 30


def test_a_folder_without_classes_and_a_start_from_a_saved_adaptation(run: Run, folder: Path) -> None:
    run(folder, "--out", "first", "--small-batches")
    saved = Path("first/adaptation.safetensors")
    output = run(folder / "cat", "--out", "second", "--small-batches", "--adaptation", saved)
    assert "accuracy" not in output
    found = rows(Path("second/predictions.csv"))
    assert list(found[0]) == ["path", "class", "probability", "entropy"]
    assert {row["class"] for row in found} <= {"0", "1", "2"}


def test_folders_that_are_not_the_models_classes_are_no_labels(run: Run, folder: Path) -> None:
    (folder / "fox").mkdir()
    (folder / "cat" / "0.png").rename(folder / "fox" / "0.png")
    assert "accuracy" not in run(folder)


@pytest.mark.parametrize("labelled", [True, False])
def test_array_files(labelled: bool, run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    np.save(tmp_path / "fog.npy", rng.integers(0, 256, (20, 32, 32, 3), np.uint8))
    if labelled:
        np.save(tmp_path / "labels.npy", rng.integers(0, 3, 20))
    assert ("accuracy" in run(tmp_path / "fog.npy", "--no-shuffle")) == labelled
    found = rows(Path("adapted/resnet20-fog/predictions.csv"))
    assert [row["path"] for row in found] == [f"fog.npy#{i}" for i in range(20)]


def test_a_folder_of_unreadable_files_claims_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    for i in range(3):
        (tmp_path / "bad" / f"{i}.jpg").touch()
    with pytest.raises(TTCError, match="none of the 3 images can be read; the first: not an image file"):
        run(tmp_path / "bad")
    assert not Path("adapted/resnet20-bad").exists()


def test_labels_from_folders_are_optional(run: Run, folder: Path) -> None:
    assert "accuracy" not in run(folder, "--no-labels")
    assert "label" not in rows(Path("adapted/resnet20-pets/predictions.csv"))[0]


def test_input_statistics_change_the_predictions(run: Run, folder: Path) -> None:
    probabilities = []
    for statistics in ("cifar10", "imagenet"):
        run(folder, "--statistics", statistics, "--out", statistics, "--method", "norm")
        probabilities.append([row["probability"] for row in rows(Path(statistics, "predictions.csv"))])
    assert probabilities[0] != probabilities[1]
    with pytest.raises(TTCError, match="unknown input statistics 'mnist'"):
        run(folder, "--statistics", "mnist", "--out", "other")


SMALL = """
import torch
def net(num_classes=3):
    torch.manual_seed(0)
    body = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    return torch.nn.Sequential(*body, torch.nn.Linear(4, num_classes))
"""


def test_the_adapted_model_is_exported(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    Path("exported_nets.py").write_text(SMALL)
    words = ["adapt", "exported_nets:net", str(folder), "--batch-size", "8", "--no-guard", "--export"]
    output = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*words, "models/first.onnx"]).output
    assert "exported           models/first.onnx: images (N x 3 x 32 x 32) in [0, 1] to 3 logits" in output
    again = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*words, "again.onnx", "--second-view"]).output
    assert "is complete" in again  # the job does not run again
    assert "exported           again.onnx" in again
    results = Path("adapted/exported_nets-net-pets")
    adapter = ttc.load_adaptation(build("exported_nets:net"), results / "adaptation.safetensors")
    images = torch.stack([as_tensor(np.asarray(Image.open(path))[None])[0] for path in sorted(folder.rglob("*.png"))])
    adapter.predict(images)
    for name, second_view in (("models/first.onnx", False), ("again.onnx", True)):
        module = adapter.export(statistics=images, second_view=second_view)
        (logits,) = runtime.InferenceSession(name).run(["logits"], {"images": images.numpy()})
        torch.testing.assert_close(torch.from_numpy(logits), module(images), rtol=0, atol=1e-4)


def test_a_wrong_export_is_found_before_the_job(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TTCError, match=r"named such as model\.onnx, got 'model\.pt'"):
        run(folder, "--export", "model.pt")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(TTCError, match=r"an ONNX file needs the package onnx .*: pip install onnx"):
        run(folder, "--export", "model.onnx")
    assert not Path("adapted").exists()


def test_a_model_that_the_guard_gave_up_is_not_exported(run: Run, folder: Path) -> None:
    pytest.importorskip("onnxscript")
    run(folder)
    path = Path("adapted/resnet20-pets/summary.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "guard": "source"}))
    with pytest.raises(TTCError, match="the guard found the source model better"):
        run(folder, "--export", "model.onnx")
    assert not Path("model.onnx").exists()


def test_a_users_own_function(run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop_models.py").write_text(
        "from ttc.models import build\n\ndef classifier(num_classes=3):\n    return build('resnet20', num_classes)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert run(folder, model="shop_models:classifier").startswith("0 ")
    assert len(rows(Path("adapted/shop_models-classifier-pets/predictions.csv"))) == 30


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "tnt"], "unknown method 'tnt'"),
        (["--device", "cuda:77"], "the device 'cuda:77' cannot be used here"),
        (["--adaptation", "nowhere"], "there is no saved adaptation nowhere"),
        (["--out", "."], "contains other files; choose another folder with --out"),
    ],
)
def test_mistakes_are_rejected(arguments: list[str], message: str, run: Run, folder: Path) -> None:
    with pytest.raises(ttc.TTCError, match=message):
        run(folder, *arguments)


def test_other_mistakes(run: Run, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ttc.TTCError, match=r"expected a folder of images or a \.npy file"):
        run(tmp_path / "nowhere")
    run(folder)
    with pytest.raises(ttc.TTCError, match=r"contains another run \(different: batch_size\)"):
        run(folder, "--batch-size", 9)
    (tmp_path / "broken.npy").write_bytes(b"x")
    with pytest.raises(ttc.TTCError, match="cannot read"):
        run(tmp_path / "broken.npy")
    np.save(tmp_path / "flat.npy", np.zeros((3, 3), np.uint8))
    with pytest.raises(ttc.TTCError, match="expected uint8 images of shape"):
        run(tmp_path / "flat.npy")
    result = CliRunner().invoke(app, ["adapt", "resnet20", str(folder), "--out", "bare"])
    assert "has no weights of its own; pass them with --checkpoint" in str(result.exception)


@pytest.mark.skipif(find_spec("pyarrow") is not None, reason="pyarrow is there")
def test_parquet_needs_pyarrow(run: Run, folder: Path) -> None:
    with pytest.raises(ttc.TTCError, match="--format parquet needs pyarrow"):
        run(folder, "--format", "parquet")


@pytest.mark.skipif(find_spec("pyarrow") is None, reason="needs pyarrow")
def test_parquet(run: Run, folder: Path) -> None:
    run(folder, "--format", "parquet")
    assert Path("adapted/resnet20-pets/predictions.parquet").exists()
