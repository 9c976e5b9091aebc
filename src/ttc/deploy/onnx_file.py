"""Write an exported module as an ONNX file."""

import importlib
import logging
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from ttc.errors import TTCError
from ttc.files import atomic


def require_onnx() -> None:
    """Check that the packages are installed that write ONNX files.

    Raises:
        TTCError: If one is missing or does not import; the sentence says which, and what to install.
    """
    for package in ("onnx", "onnxscript"):
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise TTCError(
                f"an ONNX file needs the package {package} ({error}): pip install onnx onnxruntime onnxscript"
            ) from error


def write_onnx(module: nn.Module, path: str | Path, images: Tensor) -> Path:
    """Write a module as an ONNX file with the input ``images``, the output ``logits`` and batches of any size.

    Args:
        module: What :meth:`ttc.Adapter.export` returned, or any other module from images to logits.
        path: The file to write, whole or not at all.
        images: A batch of at least two images (N, C, H, W) whose size the file is for.

    Returns:
        The path.

    Raises:
        TTCError: If the packages of the extra ``onnx`` are missing, or the module cannot be converted.
    """
    path = Path(path)
    require_onnx()
    batch = torch.export.Dim("batch", min=1)
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad(), atomic(path) as part:
            warnings.simplefilter("ignore")  # of the converter, about its own future
            torch.onnx.export(
                module.eval(),
                (images,),
                str(part),
                input_names=["images"],
                output_names=["logits"],
                dynamic_shapes=({0: batch},),
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    except OSError as error:
        raise TTCError(f"cannot write {path}: {error.strerror or error}") from error
    except Exception as error:  # the converter raises its own kinds, with pages of text
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise TTCError(f"the module cannot be converted to ONNX: {reason}") from error
    finally:
        logger.setLevel(level)
    return path
