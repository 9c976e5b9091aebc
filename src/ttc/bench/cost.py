"""What an answer costs, counted: passes through the model, time, memory, parameters."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import register_multi_grad_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from ttc.core import Adapter, Prediction


@dataclass(frozen=True)
class Cost:
    """The cost of a cell.

    ``forwards`` and ``backwards``: rows that went through the model, and rows whose gradient came back through it, per
    image shown. ``median_ms`` and ``p95_ms``: a batch answered and the answer on the CPU; the first batch is left out
    when there are others. ``peak_memory_mb``: the largest sum of tensors alive at once, in 10⁶ bytes, that were made
    while the first batch was answered, the batch itself counted, the model's own weights not. ``trainable``: parameters
    that may change.
    """

    forwards: float
    backwards: float
    median_ms: float
    p95_ms: float
    peak_memory_mb: float
    trainable: int


@dataclass
class Meter:
    """Counts while :meth:`attached` to an adapter; each batch is answered inside :meth:`batch`."""

    images: int = 0
    forward_rows: int = 0
    backward_rows: int = 0
    milliseconds: list[float] = field(default_factory=list)
    peak_bytes: int = 0

    @contextmanager
    def attached(self, adapter: Adapter) -> Iterator["Meter"]:
        """Count the passes through the adapter's model inside the block."""
        handle = adapter.model.register_forward_hook(self._passed)
        try:
            yield self
        finally:
            handle.remove()

    @contextmanager
    def batch(self, images: int) -> Iterator[None]:
        """Time the answer to a batch; the first also has its memory followed."""
        self.images += images
        follow = TensorMemory() if not self.milliseconds else None
        start = time.perf_counter()
        if follow is None:
            yield
        else:
            with follow:
                yield
            self.peak_bytes = follow.peak
        self.milliseconds.append(1e3 * (time.perf_counter() - start))

    def cost(self, adapter: Adapter) -> Cost:
        """What was counted so far."""
        timed = self.milliseconds[1:] or self.milliseconds
        return Cost(
            forwards=self.forward_rows / self.images,
            backwards=self.backward_rows / self.images,
            median_ms=float(np.median(timed)),
            p95_ms=float(np.percentile(timed, 95)),
            peak_memory_mb=self.peak_bytes / 1e6,
            trainable=sum(p.numel() for p in adapter.model.parameters() if p.requires_grad),
        )

    def _passed(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Prediction) -> None:
        rows = len(output.logits)
        self.forward_rows += rows
        watched = [tensor for tensor in output if tensor.requires_grad]
        if watched:  # called once for each backward pass that comes through here, whichever output it enters by

            def returned(gradient: Tensor) -> None:
                self.backward_rows += rows

            register_multi_grad_hook(watched, returned, mode="any")


class TensorMemory(TorchDispatchMode):
    """Follows the bytes of all tensors made inside the block, on any device, and remembers their largest sum."""

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self)
        self.live = self.peak = 0
        self._known: Any = WeakIdKeyDictionary()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        if storage not in self._known:
            size = storage.nbytes()
            self._known[storage] = _Release(self, size)
            self.live += size
            self.peak = max(self.peak, self.live)


class _Release:
    """Takes a storage's bytes off the sum when the storage is gone, and this, its entry, with it."""

    def __init__(self, memory: TensorMemory, size: int) -> None:
        self.memory, self.size = memory, size

    def __del__(self) -> None:
        self.memory.live -= self.size
