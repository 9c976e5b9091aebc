"""A cache of the source model's predictions: independent of order and batches, so computed once."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ttc.bench.precision import stored_type, uses_autocast
from ttc.bench.protocol import Protocol
from ttc.data.images import Images, as_tensor
from ttc.data.location import unwritable
from ttc.files import allocate, atomic
from ttc.methods import adapt

BATCH = 100  # fixed, so that the predictions do not depend on the cell that comes first


def source_logits(protocol: Protocol, images: Images, model: nn.Module, cache: Path | None) -> NDArray[np.float32]:
    """Return the source model's logits for a domain, from the cache where they are in it.

    Args:
        protocol: The cell; its model checksum, dtype, device and threads name the file.
        images: The domain.
        model: The source model.
        cache: The directory of the cache; None computes them each time.

    Returns:
        Logits (N, K), in the order of the images.
    """
    if cache is None:
        return np.concatenate([part for _, part in _parts(protocol, images, model)])
    dtype = "autocast" if uses_autocast(protocol.dtype) else protocol.dtype  # bfloat16 was also stored until 0.8
    parts = [protocol.model_checksum, images.checksum, dtype, protocol.device, protocol.threads, BATCH]
    name = hashlib.sha256(json.dumps([*parts, torch.__version__]).encode()).hexdigest()
    path = cache / f"source-{name[:32]}.npy"
    if not path.exists():
        try:
            _fill(path, protocol, images, model)
        except OSError as error:
            raise unwritable(cache, error) from error
    logits: NDArray[np.float32] = np.load(path, mmap_mode="r", allow_pickle=False)
    return logits


def _fill(path: Path, protocol: Protocol, images: Images, model: nn.Module) -> None:
    with atomic(path) as part:
        array: np.memmap[Any, np.dtype[np.float32]] | None = None
        for start, logits in _parts(protocol, images, model):
            if array is None:
                shape = (len(images), logits.shape[1])
                array = np.lib.format.open_memmap(part, mode="w+", dtype=np.float32, shape=shape)
                allocate(part)
            array[start : start + len(logits)] = logits
        assert array is not None
        array.flush()


def _parts(protocol: Protocol, images: Images, model: nn.Module) -> Iterator[tuple[int, NDArray[np.float32]]]:
    adapter = adapt(model, "source", autocast=uses_autocast(protocol.dtype))
    dtype = stored_type(protocol.dtype)
    for start in range(0, len(images), BATCH):
        pixels = images.pixels(range(start, min(start + BATCH, len(images))))
        yield start, adapter(as_tensor(pixels).to(protocol.device, dtype)).float().cpu().numpy()
