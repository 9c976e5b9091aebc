"""The adapted model of a batch job as an ONNX file: checked before the job, equal to the adapter after it."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import ttc
from ttc.deploy import AdaptationJob, JobSettings, read_input_images
from ttc.deploy.job_export import OnnxExport, check_export, export_job


@pytest.fixture
def job(tmp_path: Path) -> AdaptationJob:
    rng = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for i in range(20):
        Image.fromarray(rng.integers(0, 256, (16, 16, 3), np.uint8)).save(tmp_path / "photos" / f"{i:02}.png")
    settings = JobSettings("mine", "photos", batch_size=8, guard=False)
    return AdaptationJob(settings, read_input_images(tmp_path / "photos"), tmp_path / "adapted")


def run_onnx(path: Path, images: torch.Tensor) -> torch.Tensor:
    session = pytest.importorskip("onnxruntime").InferenceSession(path)
    return torch.from_numpy(session.run(["logits"], {"images": images.numpy()})[0])


@pytest.mark.parametrize("small_batches", [False, True])
def test_onnx_runtime_predicts_as_the_adapter(
    small_batches: bool, model: nn.Module, job: AdaptationJob, tmp_path: Path
) -> None:
    pytest.importorskip("onnxscript")
    adapter = ttc.adapt(model, "tent", small_batches=small_batches)
    check_export(job, adapter, tmp_path / "model.onnx")
    job.run(adapter)
    written = export_job(job, adapter, tmp_path / "model.onnx")
    images = job.read_last(20)  # whose statistics a module has where none are stored
    torch.testing.assert_close(run_onnx(written.path, images), adapter.predict(images), rtol=0, atol=1e-4)
    assert written.image_shape == (3, 16, 16)
    assert written.difference is not None
    assert written.difference < 1e-4
    assert "images (N x 3 x 16 x 16) in [0, 1]" in str(written)


def test_the_check_changes_nothing(model: nn.Module, job: AdaptationJob, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    adapter, other = ttc.adapt(model, "ttc"), ttc.adapt(model, "ttc")
    check_export(job, adapter, tmp_path / "model.onnx", second_view=True)
    batch = job.read_last(8)
    assert torch.equal(adapter(batch), other(batch))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photos"]


@pytest.mark.parametrize(
    ("method", "second_view", "path", "message"),
    [
        ("tent", False, "model.pt", r"named such as model\.onnx, got '.*model\.pt'"),
        ("tent", False, "folder.onnx", "is a folder"),
        ("tent", True, "model.onnx", "one view of an image; leave out second_view"),
        ("lame", False, "model.onnx", "cannot be exported"),
    ],
)
def test_what_cannot_be_exported_is_rejected_before_the_job(
    method: str, second_view: bool, path: str, message: str, model: nn.Module, job: AdaptationJob, tmp_path: Path
) -> None:
    pytest.importorskip("onnxscript")
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(ttc.TTCError, match=message):
        check_export(job, ttc.adapt(model, method), tmp_path / path, second_view=second_view)


def test_a_missing_package_is_found_before_the_job(
    model: nn.Module, job: AdaptationJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ttc.TTCError, match=r"needs the package (onnx|onnxscript) .*: pip install onnx"):
        check_export(job, ttc.adapt(model, "tent"), tmp_path / "model.onnx")


def test_one_image_has_no_statistics(model: nn.Module, job: AdaptationJob, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    for path in sorted((tmp_path / "photos").iterdir())[1:]:
        path.write_bytes(b"")
    assert len(job.read_last(5)) == 1
    with pytest.raises(ttc.TTCError, match=r"there is only one .*: give more images, or add --small-batches"):
        check_export(job, ttc.adapt(model, "tent"), tmp_path / "model.onnx")
    check_export(job, ttc.adapt(model, "tent", small_batches=True), tmp_path / "model.onnx")
    (tmp_path / "photos" / "00.png").write_bytes(b"")
    with pytest.raises(ttc.TTCError, match="none of the 20 images can be read"):
        job.read_last(5)


def test_without_onnx_runtime_nothing_is_said_of_it() -> None:
    assert str(OnnxExport(Path("m.onnx"), (3, 8, 8), 5, None)) == "m.onnx: images (N x 3 x 8 x 8) in [0, 1] to 5 logits"
