"""One of several processes that share a stream: ``python stream_process.py FOLDER RANK SIZE ENDING``, for the tests."""

import copy
import os
import pickle
import signal
import sys
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import ttc
from ttc.core import Adapter, LostProcessError
from ttc.core.checkpoint import state_digest
from ttc.deploy import Guard, Policy
from ttc.fast import low_memory


class Process:
    """What a task works with: the model and the batches that the test saved, and the place among the processes."""

    def __init__(self, folder: Path, rank: int, size: int) -> None:
        self.folder, self.rank, self.size = folder, rank, size
        given = torch.load(folder / "given.pt", weights_only=False)
        self.model: nn.Module = given["model"]
        self.stream: list[Tensor] = given["stream"]
        self.deep: Tensor = given["deep"]
        self.cases: dict[str, tuple[str, dict[str, Any]]] = given["cases"]

    def shard(self, index: int) -> Tensor:
        """Return this process's part of a batch."""
        batch = self.stream[index]
        part: Tensor = batch.split(shards(len(batch), self.size, index))[self.rank]
        return part


def shards(count: int, size: int, index: int) -> list[int]:
    """Return how many images of a batch each process has: equal, unequal, or none in one process, in turn."""
    if index % 3 == 0:
        return [count // size + (rank < count % size) for rank in range(size)]
    if index % 3 == 1:
        return [count - 2 * (size - 1) - 1, *[2] * (size - 2), 3]
    return [count - 5 * (size - 2), 0, *[5] * (size - 2)]


def compare(process: Process) -> dict[str, Any]:
    """Adapt to the stream with every method; return outputs and the final state."""
    results = {}
    for name, (method, options) in process.cases.items():
        adapter = ttc.distributed(ttc.adapt(process.model, method, **options))
        logits = [adapter(process.shard(index)) for index in range(len(process.stream))]
        predicted = adapter.predict(process.shard(1))
        digest = state_digest(adapter)
        adapter.reset()
        again = adapter(process.shard(0))
        results[name] = {"logits": logits, "predicted": predicted, "digest": digest, "again": again}
    others = {"deep": deep(process), "guarded": guarded(process), "rejections": rejections(process)}
    return {"results": results, **others}


def deep(process: Process) -> list[Tensor]:
    """Adapt a ResNet in float64, to tell an error from rounding, with the acceleration for large activations."""
    torch.manual_seed(0)
    adapter = ttc.distributed(ttc.adapt(ttc.models.build("resnet20").double(), "ttc", accumulate=1))
    large, low_memory.LARGE = low_memory.LARGE, 1
    try:
        return [adapter(batch.tensor_split(process.size)[process.rank]) for batch in process.deep]
    finally:
        low_memory.LARGE = large


def guarded(process: Process) -> list[Tensor]:
    """Adapt under a guard, which every process shows the whole batch."""
    adapter = ttc.distributed(ttc.adapt(process.model, "ttc", accumulate=1), batches="whole")
    guard = Guard(adapter, Policy(check_every=32))
    return [guard(batch) for batch in process.stream]


def rejections(process: Process) -> dict[str, str]:
    """Return what was said to this process about input that one of them got wrong, or that is wrong in all."""
    adapter = ttc.distributed(ttc.adapt(process.model, "tent"))
    before, good = state_digest(adapter), process.shard(0)
    first = process.rank == 0
    attempts: dict[str, Callable[[], object]] = {
        "not finite": lambda: adapter(good if first else good / 0),
        "another shape": lambda: adapter(good if first else good[..., :6]),
        "no images": lambda: adapter(torch.empty(0)),
        "other weights": lambda: ttc.distributed(ttc.adapt(changed(process.model, process.rank), "tent")),
        "another method": lambda: ttc.distributed(ttc.adapt(process.model, "tent" if first else "eta")),
        "cotta": lambda: ttc.distributed(ttc.adapt(process.model, "cotta")),
        "delta": lambda: ttc.distributed(ttc.adapt(process.model, "delta")),
        "selected": lambda: ttc.distributed(ttc.adapt(process.model, "ttc", propagate="selected")),
        "compiled": lambda: ttc.distributed(ttc.adapt(process.model, "ttc", compile=True)),
        "twice": lambda: ttc.distributed(adapter),
        "guard of shards": lambda: Guard(adapter),
        "batches": lambda: ttc.distributed(ttc.adapt(process.model), batches="half"),  # type: ignore[arg-type]
        "whole": lambda: whole(process.model)(good[: 2 + process.rank]),
        "pickle": lambda: pickle.dumps(adapter),
    }
    messages = {name: message(attempt) for name, attempt in attempts.items()}
    return {**messages, "state": "unchanged" if state_digest(adapter) == before else "changed"}


def changed(model: nn.Module, rank: int) -> nn.Module:
    other = copy.deepcopy(model)
    with torch.no_grad():
        next(other.parameters()).add_(rank)
    return other


def whole(model: nn.Module) -> Adapter:
    return ttc.distributed(ttc.adapt(model, "tent"), batches="whole")


def message(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except ttc.TTCError as error:
        return str(error)
    return "accepted"


def killed(process: Process) -> dict[str, Any]:
    """Lose the last process without a word, in the middle of a batch."""
    adapter = ttc.distributed(ttc.adapt(process.model, "tent"))
    adapter(process.shard(0))
    before = state_digest(adapter)
    if process.rank == process.size - 1:
        first_layer = next(layer for layer in adapter.model.modules() if isinstance(layer, nn.Conv2d))
        first_layer.register_forward_pre_hook(lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    return lost(adapter, process, before)


def late(process: Process) -> dict[str, Any]:
    """Let the last process arrive when the others have stopped waiting."""
    group = dist.new_group(timeout=timedelta(seconds=3))
    assert isinstance(group, dist.ProcessGroup)
    adapter = ttc.distributed(ttc.adapt(process.model, "tent"), group=group, timeout=3)
    before = state_digest(adapter)
    while process.rank == process.size - 1 and not (process.folder / "lost-0.pt").exists():
        time.sleep(0.2)
    return lost(adapter, process, before)


def lost(adapter: Adapter, process: Process, before: str) -> dict[str, Any]:
    begun, messages = time.monotonic(), []
    for _ in range(2):  # a second call must not wait again
        try:
            adapter(process.shard(0))
        except LostProcessError as error:
            messages.append(str(error))
    return {
        "messages": messages,
        "seconds": time.monotonic() - begun,
        "unchanged": state_digest(adapter) == before,
    }


ENDINGS = {"killed": killed, "late": late}

if __name__ == "__main__":
    warnings.simplefilter("ignore")  # batches of one image in a shard
    torch.set_num_threads(1)
    process = Process(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    place, minute = f"file://{process.folder / 'store'}", timedelta(seconds=60)
    dist.init_process_group("gloo", place, rank=process.rank, world_size=process.size, timeout=minute)
    torch.save(compare(process), process.folder / f"compared-{process.rank}.pt")
    torch.save(ENDINGS[sys.argv[4]](process), process.folder / f"lost-{process.rank}.pt")
    os._exit(0)  # no clean-up of a group that has lost a process
