"""The adapted model of a batch job as an ONNX file: the work of ``ttc adapt --export``."""

import importlib
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ttc.core import Adapter
from ttc.core.exported import uses_batch_statistics
from ttc.deploy.batch_job import AdaptationJob
from ttc.deploy.onnx_file import require_onnx, write_onnx
from ttc.errors import TTCError

STATISTICS_IMAGES = 256  # recent images that a method without stored statistics is given
COMPARED_IMAGES = 8  # images on which ONNX Runtime is compared with the module
TOLERANCE = 1e-4  # of ONNX Runtime's logits, where they are of the order of one


class OnnxExport(NamedTuple):
    """An ONNX file that was written.

    Args:
        path: The file.
        image_shape: The shape (C, H, W) of its images, in [0, 1].
        num_classes: The number of logits per image.
        difference: The largest difference of ONNX Runtime's logits; None if ONNX Runtime is not installed.
    """

    path: Path
    image_shape: tuple[int, ...]
    num_classes: int
    difference: float | None

    def __str__(self) -> str:
        size = " x ".join(map(str, self.image_shape))
        compared = "" if self.difference is None else f"; ONNX Runtime differs by at most {self.difference:.0e}"
        return f"{self.path}: images (N x {size}) in [0, 1] to {self.num_classes} logits{compared}"


def check_export(job: AdaptationJob, adapter: Adapter, path: Path, *, second_view: bool = False) -> None:
    """Check before a job starts that its result can be exported.

    Args:
        job: The job.
        adapter: The adapter in its initial state; it stays as it is.
        path: The file to be written.
        second_view: Whether all views of the method are to be exported.

    Raises:
        TTCError: If packages are missing, the file is not called ``.onnx``, or the method cannot be exported.
    """
    if path.suffix.lower() != ".onnx":
        raise TTCError(f"the adapted model is exported as an ONNX file, named such as model.onnx, got '{path}'")
    if path.is_dir():
        raise TTCError(f"{path} is a folder: give the file to export to, such as {path / 'model.onnx'}")
    require_onnx()
    _export(adapter, job.read_last(COMPARED_IMAGES), second_view=second_view)


def export_job(job: AdaptationJob, adapter: Adapter, path: Path, *, second_view: bool = False) -> OnnxExport:
    """Write the adapted model of a finished job as an ONNX file, and compare ONNX Runtime's logits where it is there.

    A method that normalizes with the statistics of each batch gets those of the last 256 images of the job.

    Args:
        job: The finished job.
        adapter: The adapter as the job left it.
        path: The file to write, whole or not at all.
        second_view: Predict with all views of the method, at the cost of a forward pass each.

    Returns:
        What was written.

    Raises:
        TTCError: If the model cannot be converted, the file cannot be written, or ONNX Runtime's logits differ.
    """
    images = job.read_last(STATISTICS_IMAGES)
    module = _export(adapter, images, second_view=second_view).cpu()
    sample = images[:COMPARED_IMAGES]
    write_onnx(module, path, sample if len(sample) > 1 else sample.repeat(2, 1, 1, 1))
    difference = _compare(module, path, sample)
    return OnnxExport(path, tuple(images.shape[1:]), adapter.model.num_classes, difference)


def _export(adapter: Adapter, images: Tensor, *, second_view: bool) -> nn.Module:
    images = images.to(adapter.device)
    if not uses_batch_statistics(adapter):
        adapter.predict(images[:COMPARED_IMAGES])  # an adapter that was loaded has not seen the size of its images
        return adapter.export(second_view=second_view)
    if len(images) < 2:
        raise TTCError(
            "the method normalizes with the statistics of several images and there is only one to export them from: "
            "give more images, or add --small-batches"
        )
    return adapter.export(statistics=images, second_view=second_view)


def _compare(module: nn.Module, path: Path, images: Tensor) -> float | None:
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError:
        return None
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run(["logits"], {"images": images.numpy()})
    with torch.no_grad():
        expected = module(images)
    difference = float((torch.from_numpy(found) - expected).abs().max())
    if not difference <= TOLERANCE * max(1.0, float(expected.abs().max())):
        raise TTCError(
            f"{path} was written, but the logits of ONNX Runtime differ by {difference:.2g} from those of the adapter: "
            "do not deploy it; another version of onnxruntime or onnxscript may convert the model correctly"
        )
    return difference
