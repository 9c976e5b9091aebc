"""Shards of a batch over the processes of a ``torch.distributed`` group."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

from ttc.core import Adapter
from ttc.core.processes import LostProcessError, Processes
from ttc.errors import TTCError

TEXT_BYTES = 1024  # of a message or a digest that processes exchange


class GroupProcesses(Processes):
    """The processes of a ``torch.distributed`` group, each with its shard of every batch.

    Args:
        group: The process group; its backend decides where exchanged tensors must be.
        device: Where messages are exchanged: the CPU for gloo, the GPU for NCCL.
        timeout: The seconds that the group waits for a process, for messages.
        whole_batches: Whether every process is called with the whole batch; it then computes an equal shard of it.
    """

    def __init__(
        self, group: "dist.ProcessGroup", device: torch.device, *, timeout: float, whole_batches: bool = False
    ) -> None:
        self.group, self.device, self.timeout, self.whole_batches = group, device, timeout, whole_batches
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.counts: tuple[int, ...] = ()  # the images of each process while a batch is computed
        self._validated: tuple[int, ...] = ()  # those of the batch that was validated last
        self._lost: str = ""

    @property
    def active(self) -> bool:
        """Whether a batch is being computed in shards now."""
        return bool(self.counts)

    def validate(self, adapter: Adapter, x: Any) -> Tensor:
        """Return the validated input of this process; what one process rejects, all of them reject.

        A process without images gets a blank one, so that it takes part in what the others compute; it counts nowhere.
        """
        error: TTCError | None = None
        empty = isinstance(x, Tensor) and x.ndim > 0 and len(x) == 0 and not self.whole_batches
        if not empty:
            try:
                # A single image is shown twice: whether the batch is too small is not decided by one shard.
                single = isinstance(x, Tensor) and x.ndim > 1 and len(x) == 1 and not self.whole_batches
                x = adapter.validate(x.expand(2, *x.shape[1:]))[:1] if single else adapter.validate(x)
            except TTCError as rejected:
                error = rejected
        shape = list(x.shape) if error is None else []
        mine = json.dumps({"shape": shape, "error": str(error or "")[:200]}, ensure_ascii=False)
        parts = [json.loads(part) for part in self.exchange(mine)]
        if error is not None:
            raise error
        for rank, part in enumerate(parts):
            if part["error"]:
                raise TTCError(f"process {rank} rejected its images, so the batch is left out by all: {part['error']}")
        counts, image = _counts_of([part["shape"] for part in parts])
        if self.whole_batches and len(set(counts)) > 1:
            raise TTCError(f"every process takes the whole batch, and they got {_listed(counts)} images")
        self._validated = _even(counts[0], self.size) if self.whole_batches else counts
        if not empty:
            assert isinstance(x, Tensor)
            return x
        return next(adapter.model.parameters()).detach().new_zeros((1, *image))

    def run(self, compute: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Compute the logits of all shards; return those of the input, a blank image's included in no other way."""
        try:
            with self._computing(self._validated):
                if self.whole_batches:
                    return compute(self._shard_of(x))
                return self._own_rows(compute(x))
        except TTCError:
            raise  # as in every other process
        except BaseException as error:  # here alone: the others are in the middle of the batch
            self._lost = self._lost or f"{type(error).__name__} in process {self.rank}"
            raise

    @contextmanager
    def split(self, whole: Tensor) -> Iterator[Tensor]:
        """Yield an equal shard of images that every process has; inside, shards are those of ``whole``."""
        if not self.active:
            yield whole
            return
        with self._computing(_even(len(whole), self.size)):
            yield self._shard_of(whole)

    def join(self, shard: Tensor) -> Tensor:
        """Return the rows of all shards, in the order of the processes, with a gradient for those of this one."""
        if not self.active:
            return shard
        return _apply(_Join, shard, self)

    def apply_to_whole(self, view: Callable[[Tensor], Tensor], shard: Tensor) -> Tensor:
        """Return this shard of the view of the whole batch, so that random draws are those of the whole batch."""
        return self._shard_of(view(self.join(shard))) if self.active else view(shard)

    def stack(self, values: Tensor) -> Tensor:
        """Return the values of every process as (size, ...); their gradients are summed over processes."""
        if not self.active:
            return values[None]
        return _apply(_Stack, values, self)

    def fractions(self) -> list[float]:
        """Return the fraction of the batch that each process has."""
        return [count / sum(self.counts) for count in self.counts] if self.active else [1.0]

    def count_rows(self, shard: Tensor) -> int:
        """Return how many rows the shards have together, for a shard or an activation with its rows."""
        return sum(self.counts) * len(shard) // max(1, self.counts[self.rank]) if self.active else len(shard)

    def sum(self, tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Return the sums of tensors over processes, in one exchange."""
        present = [tensor for tensor in tensors if tensor is not None]
        if not self.active or not present:
            return list(tensors)
        flat = torch.cat([tensor.reshape(-1) for tensor in present])
        self._collect(lambda: dist.all_reduce(flat, group=self.group))
        parts = iter(flat.split([tensor.numel() for tensor in present]))
        return [None if tensor is None else next(parts).view_as(tensor).to(tensor.dtype) for tensor in tensors]

    def exchange(self, text: str) -> list[str]:
        """Return the text of every process; a long one is cut."""
        content = text.encode()[:TEXT_BYTES].decode(errors="ignore").encode().ljust(TEXT_BYTES)
        mine = torch.frombuffer(bytearray(content), dtype=torch.uint8).to(self.device)
        return [bytes(row.tolist()).decode().rstrip() for row in self.gather_equal(mine).cpu()]

    def exchange_objects(self, value: Any) -> list[Any]:
        """Return the value of every process, pickled on the way: for decoded images, among processes of one program."""
        values: list[Any] = [None] * self.size
        with (
            torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()
        ):  # where NCCL exchanges them
            self._collect(lambda: dist.all_gather_object(values, value, group=self.group))
        return values

    def gather_equal(self, values: Tensor) -> Tensor:
        """Return tensors of one shape from all processes as (size, ...), without gradients."""
        values = values.detach().contiguous()
        parts = [torch.empty_like(values) for _ in range(self.size)]
        self._collect(lambda: dist.all_gather(parts, values, group=self.group))
        return torch.stack(parts)

    def own_slice(self) -> slice:
        """Return the rows of this process among those of all."""
        start = sum(self.counts[: self.rank])
        return slice(start, start + self.counts[self.rank])

    def _own_rows(self, whole: Tensor) -> Tensor:
        return whole[self.own_slice()]

    def _shard_of(self, whole: Tensor) -> Tensor:
        """Return the rows of this process; a blank image, which counts nowhere, if it has none."""
        return self._own_rows(whole) if self.counts[self.rank] else torch.zeros_like(whole[:1])

    @contextmanager
    def _computing(self, counts: tuple[int, ...]) -> Iterator[None]:
        before, self.counts = self.counts, counts
        try:
            yield
        finally:
            self.counts = before

    def _collect(self, operation: Callable[[], object]) -> None:
        """Run a collective operation; if it fails, another process is gone, and so is the stream."""
        if self._lost:
            self._end(self._lost)
        try:
            operation()
        except RuntimeError as error:
            line = str(error).strip().partition("\n")[0]
            self._lost = re.sub(r"^\[[^]]*:\d+\] ", "", line).partition(". ")[0]  # without gloo's place and advice
            raise LostProcessError(self._message(self._lost)) from error

    def _end(self, reason: str) -> NoReturn:
        raise LostProcessError(self._message(reason))

    def _message(self, reason: str) -> str:
        return (
            f"another process of the stream has stopped, or did not arrive within {self.timeout:g} s, so process "
            f"{self.rank} of {self.size} stops too: start all of them again from what was saved ({reason})"
        )

    def __reduce__(self) -> NoReturn:
        raise TTCError(
            "an adapter that shares its stream with other processes cannot be pickled; save it with adapter.save(path)"
        )


class _Join(torch.autograd.Function):
    """Rows of all shards; what follows is computed by every process alike, so each takes the gradient of its rows."""

    @staticmethod
    def forward(ctx: Any, shard: Tensor, processes: GroupProcesses) -> Tensor:
        ctx.rows, ctx.length = processes.own_slice(), len(shard)
        counts, most = processes.counts, max(processes.counts)
        own = shard[: counts[processes.rank]]
        padded = own.new_zeros((most, *shard.shape[1:]))
        padded[: len(own)] = own
        parts = processes.gather_equal(padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        own = gradient[ctx.rows]
        if len(own) == ctx.length:
            return own, None
        return own.new_zeros((ctx.length, *own.shape[1:])), None  # a blank image has no gradient


class _Stack(torch.autograd.Function):
    """Values of all processes; each computes something else with them, so their gradients are summed."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, processes: GroupProcesses) -> Tensor:
        ctx.processes = processes
        return processes.gather_equal(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (total,) = ctx.processes.sum([gradient.contiguous()])
        return total[ctx.processes.rank], None


def _apply(function: Any, values: Tensor, processes: GroupProcesses) -> Tensor:
    output: Tensor = function.apply(values, processes)
    return output


def _even(count: int, size: int) -> tuple[int, ...]:
    """Return the sizes of the most equal shards, larger ones first.

    >>> _even(7, 3), _even(1, 2)
    ((3, 2, 2), (1, 0))
    """
    return tuple(count // size + (rank < count % size) for rank in range(size))


def _counts_of(shapes: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the images of each process and the shape of an image, from the shapes of their tensors."""
    counts = tuple(shape[0] for shape in shapes)
    images = {tuple(shape[1:]) for shape in shapes if shape[0]}
    if not images:
        raise TTCError("expected a batch of at least one image in one of the processes, got none")
    if len(images) > 1:
        raise TTCError(f"the processes of a stream take images of one shape, got {_listed(sorted(images))}")
    return counts, images.pop()


def _listed(values: Sequence[object]) -> str:
    return " and ".join(map(str, dict.fromkeys(values)))
