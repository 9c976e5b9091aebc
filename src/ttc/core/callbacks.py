"""Callbacks: objects that are told of every batch and every event of an adapter, a guard or a run."""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from ttc.core.entropy import softmax_entropy
from ttc.errors import TTCError


class Event(NamedTuple):
    """Something an adapter or its guard did besides predicting.

    Args:
        images: How many images it had predicted by then.
        action: ``"warn"``, ``"rollback"``, ``"freeze"``, ``"source"``, ``"adapt"``, ``"step down"``, ``"resume"`` or
            ``"reset"``.
        reason: Why, in words: the signal, or ``"requested"`` when the caller asked for it.
    """

    images: int
    action: str
    reason: str


@dataclass(frozen=True)
class BatchRecord:
    """What a callback is told of a batch.

    Args:
        batch: The number of the batch, from 1.
        images: Images so far, those of this batch included.
        logits: The predictions (N, K).
        labels: The classes (N,), where a run knows them; negative for unknown ones.
        stats: The counters and signals of a guard.
    """

    batch: int
    images: int
    logits: Tensor
    labels: Tensor | None = None
    stats: Mapping[str, float] = field(default_factory=dict)

    @property
    def metrics(self) -> dict[str, float]:
        """The batch in numbers: a flat dict for a file or a monitoring system."""
        probabilities = self.logits.detach().float().softmax(1)
        classes = probabilities.argmax(1)
        found: dict[str, float] = {
            **self.stats,
            "batch": self.batch,
            "images": self.images,
            "batch_size": len(self.logits),
            "entropy": softmax_entropy(self.logits.detach().float()).mean().item(),
            "confidence": probabilities.amax(1).mean().item(),
            "largest_class_fraction": classes.bincount().max().item() / len(classes),
        }
        if self.labels is not None and bool((self.labels >= 0).any()):
            known = self.labels >= 0
            found["accuracy"] = (classes.to(self.labels.device) == self.labels)[known].float().mean().item()
        return found


class Callback:
    """What a callback may define; any object with one of the two methods will do.

    An error in a callback is reported as a warning and does not stop predictions.

    Example:
        >>> class Printer(Callback):
        ...     def on_batch(self, record: BatchRecord) -> None:
        ...         print("batch", record.batch, "entropy", round(record.metrics["entropy"], 2))
        >>> import torch
        >>> CallbackList([Printer()]).report_batch(torch.zeros(2, 3))
        batch 1 entropy 1.1
    """

    def on_batch(self, record: BatchRecord) -> None:
        """Do something with a predicted batch."""

    def on_event(self, event: Event) -> None:
        """Do something with an event, such as a rollback."""


class CallbackList:
    """The callbacks of an adapter, a guard or a run, and what they were told of so far.

    They belong to one object in one process: copies and pickles start without any.

    Args:
        callbacks: Objects with ``on_batch``, ``on_event`` or both.

    Raises:
        TTCError: If one of them has neither.
    """

    def __init__(self, callbacks: Iterable[Any] = ()) -> None:
        self.members: list[Any] = []
        self.batches = self.images = 0
        for callback in callbacks:
            self.add(callback)

    def __bool__(self) -> bool:
        return bool(self.members)

    def add(self, callback: Any) -> None:
        """Tell ``callback`` of what comes next."""
        if isinstance(callback, type) or not (hasattr(callback, "on_batch") or hasattr(callback, "on_event")):
            raise TTCError(f"a callback has on_batch(record) or on_event(event), {_name(callback)} has neither")
        self.members.append(callback)

    def remove(self, callback: Any) -> None:
        """Tell ``callback`` nothing more."""
        self.members.remove(callback)

    def report_batch(
        self, logits: Tensor, labels: Tensor | None = None, stats: Mapping[str, float] | None = None
    ) -> None:
        """Tell all of a batch."""
        self.batches += 1
        self.images += len(logits)
        self._report("on_batch", BatchRecord(self.batches, self.images, logits, labels, stats or {}))

    def report_event(self, event: Event) -> None:
        """Tell all of an event."""
        self._report("on_event", event)

    @contextmanager
    def forward_events(self, others: "CallbackList") -> Iterator[None]:
        """Tell the callbacks of another list of the events inside the block too."""
        forwarded = [_EventsOnly(callback) for callback in others.members if hasattr(callback, "on_event")]
        self.members += forwarded
        try:
            yield
        finally:
            self.members = [member for member in self.members if member not in forwarded]

    def _report(self, method: str, what: BatchRecord | Event) -> None:
        for callback in list(self.members):
            try:
                getattr(callback, method, _ignore)(what)
            except Exception as error:  # a broken callback must not stop predictions
                warnings.warn(
                    f"{method} of the callback {_name(callback)} failed: {type(error).__name__}: {error}", stacklevel=4
                )

    def __deepcopy__(self, memo: object) -> "CallbackList":
        return CallbackList()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return CallbackList, ()


class _EventsOnly:
    """Passes events on to a callback, and no batches."""

    def __init__(self, callback: Any) -> None:
        self.on_event = callback.on_event


def _ignore(what: object) -> None:
    pass


def _name(callback: Any) -> str:
    return getattr(callback, "__name__", type(callback).__name__)
