"""Single images and ragged batches in, answers out in order: micro-batches by count and by time."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future

import torch
from torch import Tensor

from ttc.errors import TTCError


class _Request:
    """Images that were handed in together, and how far they are answered."""

    def __init__(self, images: Tensor, single: bool) -> None:
        self.images, self.single = images, single
        self.arrived = time.monotonic()
        self.future: Future[Tensor] = Future()
        self.taken = 0
        self.answers: list[Tensor] = []

    def answer(self, logits: Tensor) -> None:
        """Keep a part of the answer, and give it away when it is whole."""
        self.answers.append(logits)
        if sum(map(len, self.answers)) == len(self.images) and not self.future.done():
            whole = torch.cat(self.answers)
            self.future.set_result(whole[0] if self.single else whole)


class Stream:
    """Answers images from any number of threads with one adapter, in the order they came.

    ``adapter`` is an :class:`ttc.Adapter`, a :class:`Guard`, or any function of a batch. A micro-batch goes off when
    ``batch_size`` images wait, or when the oldest has waited ``max_wait`` seconds. When ``capacity`` images wait,
    :meth:`submit` waits too, so memory stays bounded. Leaving the ``with`` block answers all that was handed in.

    >>> with Stream(lambda x: x.flatten(1).sum(1, keepdim=True), batch_size=4, max_wait=0.01) as stream:
    ...     one = stream.submit(torch.ones(3, 2, 2))  # a single image (C, H, W)
    ...     many = stream.submit(torch.ones(5, 3, 2, 2))
    ...     one.result().tolist(), tuple(many.result().shape)
    ([12.0], (5, 1))
    """

    def __init__(
        self,
        adapter: Callable[[Tensor], Tensor],
        *,
        batch_size: int = 32,
        max_wait: float = 0.05,
        capacity: int | None = None,
    ) -> None:
        capacity = 8 * batch_size if capacity is None else capacity
        if batch_size < 1 or capacity < 1 or max_wait < 0:
            raise TTCError(
                "batch_size and capacity are positive and max_wait is not negative, "
                f"got {batch_size}, {capacity} and {max_wait}"
            )
        self.adapter, self.batch_size, self.max_wait, self.capacity = adapter, batch_size, max_wait, capacity
        self._waiting: deque[_Request] = deque()
        self._images = 0
        self._open = True
        self._changed = threading.Condition()
        self._worker = threading.Thread(target=self._work, name="ttc-stream", daemon=True)
        self._worker.start()

    def submit(self, images: Tensor, *, timeout: float | None = None) -> "Future[Tensor]":
        """Hand in an image (C, H, W) or a batch (N, C, H, W); a future of its logits (K,) or (N, K).

        Waits while ``capacity`` images wait, at most ``timeout`` seconds. A refusal raises in its own future only.
        """
        given: object = images
        if not isinstance(given, Tensor):
            raise TTCError(f"expected an image (C, H, W) or a batch (N, C, H, W), got {type(given).__name__}")
        if images.ndim not in {3, 4} or images.numel() == 0:
            raise TTCError(f"expected an image (C, H, W) or a batch (N, C, H, W), got shape {tuple(images.shape)}")
        single = images.ndim == 3
        request = _Request(images[None] if single else images, single)
        with self._changed:
            room = self._changed.wait_for(lambda: not self._open or self._has_room(request), timeout)
            if not self._open:
                raise TTCError("the stream is closed; open another one")
            if not room:
                raise TTCError(f"{self._images} images wait already and none was answered within {timeout} seconds")
            self._waiting.append(request)
            self._images += len(request.images)
            self._changed.notify_all()
        return request.future

    def map(self, images: Iterable[Tensor]) -> Iterator[Tensor]:
        """The answers for images or batches, one for each, in order."""
        pending: deque[Future[Tensor]] = deque()
        for item in images:
            pending.append(self.submit(item))
            while pending and pending[0].done():
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    def close(self) -> None:
        """Take no more images, answer those that wait, and stop."""
        with self._changed:
            self._open = False
            self._changed.notify_all()
        self._worker.join()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _has_room(self, request: _Request) -> bool:
        return self._images == 0 or self._images + len(request.images) <= self.capacity

    def _full(self) -> bool:
        return self._images >= self.batch_size or not self._open

    def _work(self) -> None:
        while parts := self._next_batch():
            requests, images = zip(*parts, strict=True)
            try:
                answers = self.adapter(torch.cat(images)).split([len(part) for part in images])
            except BaseException as error:
                self._one_by_one(parts, error)
                continue
            for request, logits in zip(requests, answers, strict=True):
                request.answer(logits)

    def _one_by_one(self, parts: list[tuple[_Request, Tensor]], error: BaseException) -> None:
        """Answer the requests of a refused batch singly, so that a bad one spoils no other."""
        for request, images in parts:
            if request.future.done():
                continue
            try:
                if len(parts) == 1 or not isinstance(error, TTCError):
                    raise error
                request.answer(self.adapter(images))
            except BaseException as own:
                request.future.set_exception(own)

    def _next_batch(self) -> list[tuple[_Request, Tensor]]:
        """The images to answer next; nothing when the stream is closed and all are answered."""
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._waiting or not self._open)
                if not self._waiting:
                    return []
                due = self._waiting[0].arrived + self.max_wait
                self._changed.wait_for(self._full, max(0.0, due - time.monotonic()))
                parts = self._taken()
                self._changed.notify_all()
                if parts:
                    return parts

    def _taken(self) -> list[tuple[_Request, Tensor]]:
        """Up to ``batch_size`` images of one kind from the front of the queue."""
        parts: list[tuple[_Request, Tensor]] = []
        room = self.batch_size
        while self._waiting and room:
            request = self._waiting[0]
            rest = request.images[request.taken : request.taken + room]
            if parts and _kind(rest) != _kind(parts[0][1]):
                break
            if request.taken == 0 and not request.future.set_running_or_notify_cancel():
                self._images -= len(self._waiting.popleft().images)  # cancelled while it waited
                continue
            parts.append((request, rest))
            request.taken += len(rest)
            self._images -= len(rest)
            room -= len(rest)
            if request.taken == len(request.images):
                self._waiting.popleft()
        return parts


def _kind(images: Tensor) -> tuple[torch.Size, torch.dtype, torch.device]:
    return images.shape[1:], images.dtype, images.device
