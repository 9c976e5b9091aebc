"""The cost of adapting: passes through the model, time, memory, parameters."""

import time
from collections.abc import Callable, Iterator
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

from ttc.core import Adapter, Classifier, Prediction


@dataclass(frozen=True)
class Cost:
    """The cost of a cell.

    Args:
        forwards: Images that went forward through the model, per image of the stream.
        backwards: Images whose gradient went back through it, per image of the stream.
        median_ms: The median time from a batch to its prediction on the CPU, without the first batch if there are
            others; see :func:`clock_for`.
        p95_ms: The 95th percentile of the same times.
        peak_memory_mb: The largest sum of tensors alive at once while the first batch was predicted, in 10⁶ bytes: the
            batch counts, the model's own weights do not.
        trainable: The number of parameters that may change.
    """

    forwards: float
    backwards: float
    median_ms: float
    p95_ms: float
    peak_memory_mb: float
    trainable: int


def clock_for(device: str, threads: int) -> Callable[[], float]:
    """Return the clock that times the prediction of a batch, in seconds.

    On the CPU with one thread it is the time of the processor, which other work on the machine does not lengthen. With
    several threads, or a GPU, it is the time on the wall.

    Args:
        device: Where the model runs.
        threads: Torch threads.
    """
    return time.process_time if device == "cpu" and threads == 1 else time.perf_counter


@dataclass
class Meter:
    """Counts while :meth:`attached` to an adapter; each batch is predicted inside :meth:`batch`."""

    clock: Callable[[], float] = time.perf_counter
    images: int = 0
    forward_rows: int = 0
    backward_rows: int = 0
    milliseconds: list[float] = field(default_factory=list)
    peak_bytes: int = 0

    @contextmanager
    def attached(self, adapter: Adapter) -> Iterator["Meter"]:
        """Count the passes through the adapter's classifiers, such as a student and its teacher, inside the block."""
        classifiers = [network for network in adapter.networks() if isinstance(network, Classifier)]
        handles = [classifier.register_forward_hook(self._count_pass) for classifier in classifiers]
        try:
            yield self
        finally:
            for handle in handles:
                handle.remove()

    @contextmanager
    def batch(self, images: int) -> Iterator[None]:
        """Time the prediction of a batch; for the first one, measure its memory too."""
        self.images += images
        memory = TensorMemory() if not self.milliseconds else None
        start = self.clock()
        if memory is None:
            yield
        else:
            with memory:
                yield
            self.peak_bytes = memory.peak
        self.milliseconds.append(1e3 * (self.clock() - start))

    def cost(self, adapter: Adapter) -> Cost:
        """Return what was counted so far."""
        timed = self.milliseconds[1:] or self.milliseconds
        return Cost(
            forwards=self.forward_rows / self.images,
            backwards=self.backward_rows / self.images,
            median_ms=float(np.median(timed)),
            p95_ms=float(np.percentile(timed, 95)),
            peak_memory_mb=self.peak_bytes / 1e6,
            trainable=sum(p.numel() for p in adapter.model.parameters() if p.requires_grad),
        )

    def _count_pass(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Prediction) -> None:
        rows = len(output.logits)
        self.forward_rows += rows
        watched = [tensor for tensor in output if tensor.requires_grad]
        if watched:  # called once per backward pass through the model, whichever output it enters by

            def count_backward(gradient: Tensor) -> None:
                self.backward_rows += rows

            register_multi_grad_hook(watched, count_backward, mode="any")


class TensorMemory(TorchDispatchMode):
    """Measures the bytes of all tensors made inside the block, on any device, and the largest sum alive at once."""

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
    """Subtracts a storage's bytes from the sum when the storage, and this entry with it, is freed."""

    def __init__(self, memory: TensorMemory, size: int) -> None:
        self.memory, self.size = memory, size

    def __del__(self) -> None:
        self.memory.live -= self.size
