"""ONNX Runtime gives the module's logits."""

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.deploy import write_onnx


def test_onnx_runtime_gives_the_same_logits(model: nn.Module, stream: list[Tensor], tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    adapter = ttc.adapt(model, "ttc", small_batches=True, normalize=(0.4, 0.3))
    for batch in stream:
        adapter(batch)
    module = adapter.export(second_view=True)
    path = write_onnx(module, tmp_path / "model.onnx", stream[0])
    session = runtime.InferenceSession(path)
    for images in (stream[0], stream[1][:1]):
        (logits,) = session.run(["logits"], {"images": images.numpy()})
        torch.testing.assert_close(torch.from_numpy(logits), adapter.predict(images), rtol=0, atol=1e-4)
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


def test_a_module_that_cannot_be_converted_leaves_no_file(stream: list[Tensor], tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")

    class Deciding(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(ttc.TTCError, match=r"the module cannot be converted to ONNX: .+"):
        write_onnx(Deciding(), tmp_path / "model.onnx", stream[0])
    assert not list(tmp_path.iterdir())


def test_a_missing_package_is_named(
    model: nn.Module, stream: list[Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ttc.TTCError, match=r"needs the package onnx .*: pip install onnx"):
        write_onnx(model, tmp_path / "model.onnx", stream[0])
