"""Single images and batches of any size in, predictions out in order: micro-batches by count and by time."""

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future

import torch
from torch import Tensor

from ttc.errors import TTCError


class _Request:
    """Images that were submitted together, and the predictions for them so far."""

    def __init__(self, images: Tensor, single: bool) -> None:
        self.images, self.single = images, single
        self.arrived = time.monotonic()
        self.future: Future[Tensor] = Future()
        self.dispatched = 0  # images that have left the queue
        self.predicted: list[Tensor] = []

    def add(self, logits: Tensor) -> None:
        """Add predictions for the next images; the future completes with the last of them."""
        self.predicted.append(logits)
        if sum(map(len, self.predicted)) < len(self.images) or self.future.done():
            return
        try:
            complete = torch.cat(self.predicted)
        except Exception as error:  # outputs of different widths: the adapter's fault, no reason to stop
            self.future.set_exception(error)
        else:
            self.future.set_result(complete[0] if self.single else complete)


class Stream:
    """Predicts images from any number of threads with one adapter, in order of arrival, in micro-batches.

    A micro-batch is dispatched when ``batch_size`` images are queued, or when the oldest has waited ``max_wait``
    seconds. Leaving the ``with`` block predicts everything that was submitted, and so does dropping the stream. If the
    worker thread fails, every pending future raises the reason.

    Args:
        adapter: A :class:`ttc.Adapter`, a :class:`Guard`, or any function of a batch that returns one row per image.
        batch_size: The largest micro-batch.
        max_wait: Seconds after which a smaller one is dispatched.
        capacity: Images that may be queued before :meth:`submit` blocks, so that memory stays bounded; eight
            micro-batches unless given. A callback of a future runs on the worker thread and never blocks in
            :meth:`submit`, where it would wait for itself.

    Raises:
        TTCError: If a setting is out of range.

    Example:
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
        for name, number in {"batch_size": batch_size, "capacity": capacity}.items():
            if number is not None and (type(number) is not int or number < 1):
                raise TTCError(f"{name} must be a positive whole number, got {number}")
        if not 0 <= max_wait < threading.TIMEOUT_MAX:
            raise TTCError(f"max_wait must be a number of seconds that is not negative, got {max_wait}")
        self._worker = _Worker(adapter, batch_size, max_wait, 8 * batch_size if capacity is None else capacity)
        # The thread knows the worker, not the stream: dropping the stream ends both.
        self._finalizer = weakref.finalize(self, self._worker.stop)

    @property
    def adapter(self) -> Callable[[Tensor], Tensor]:
        """What predicts the micro-batches."""
        return self._worker.adapter

    @property
    def is_open(self) -> bool:
        """Whether images are accepted: until :meth:`close`, or until the worker thread fails."""
        return self._worker.is_open

    def submit(self, images: Tensor, *, timeout: float | None = None) -> "Future[Tensor]":
        """Queue an image or a batch for prediction; block while the queue is full.

        Args:
            images: An image (C, H, W) or a batch (N, C, H, W).
            timeout: Seconds to block at most; None waits as long as it takes.

        Returns:
            A future of the logits, (K,) for an image and (N, K) for a batch. If the adapter rejects the images, the
            error is raised by this future alone.

        Raises:
            TTCError: If these are no images, the stream is closed, or the queue stays full for ``timeout`` seconds.
        """
        given: object = images
        if not isinstance(given, Tensor):
            raise TTCError(f"expected an image (C, H, W) or a batch (N, C, H, W), got {type(given).__name__}")
        if images.ndim not in {3, 4} or images.numel() == 0:
            raise TTCError(f"expected an image (C, H, W) or a batch (N, C, H, W), got shape {tuple(images.shape)}")
        single = images.ndim == 3
        request = _Request(images[None] if single else images, single)
        self._worker.put(request, timeout)
        return request.future

    def map(self, images: Iterable[Tensor]) -> Iterator[Tensor]:
        """Predict images or batches, in order.

        Args:
            images: Images (C, H, W) or batches (N, C, H, W), read as the queue has room.

        Yields:
            The logits of each item, (K,) or (N, K).
        """
        pending: deque[Future[Tensor]] = deque()
        for item in images:
            pending.append(self.submit(item))
            while pending and pending[0].done():
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    def close(self) -> None:
        """Accept no more images, predict those that are queued, and stop."""
        self._worker.stop()
        self._worker.join()
        self._finalizer.detach()  # it would keep the adapter alive, if that knows this stream

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Worker:
    """The queue of a stream and the thread that empties it."""

    def __init__(self, adapter: Callable[[Tensor], Tensor], batch_size: int, max_wait: float, capacity: int) -> None:
        self.adapter, self.batch_size, self.max_wait, self.capacity = adapter, batch_size, max_wait, capacity
        self._queue: deque[_Request] = deque()
        self._queued_images = 0
        self._open = True
        self._failure: BaseException | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="ttc-stream", daemon=True)
        self._thread.start()

    def put(self, request: _Request, timeout: float | None) -> None:
        """Queue a request; block while the queue is full, unless this is the thread that would empty it."""
        with self._changed:
            here = threading.current_thread() is self._thread
            room = here or self._changed.wait_for(lambda: not self._open or self._has_room(request), timeout)
            if not self._open:
                why = "" if self._failure is None else f" because its worker failed ({self._failure!r})"
                raise TTCError(f"the stream is closed{why}; open another one")
            if not room:
                raise TTCError(
                    f"the stream is full: {self._queued_images} images are queued and there was no room within "
                    f"{timeout} seconds; submit more slowly or raise capacity"
                )
            self._queue.append(request)
            self._queued_images += len(request.images)
            self._changed.notify_all()

    @property
    def is_open(self) -> bool:
        """Whether requests are accepted."""
        return self._open

    def stop(self) -> None:
        """Accept no more requests; the thread predicts those that are queued, and ends."""
        with self._changed:
            self._open = False
            self._changed.notify_all()

    def join(self) -> None:
        """Wait until the thread has ended, unless this is the thread."""
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _has_room(self, request: _Request) -> bool:
        return self._queued_images == 0 or self._queued_images + len(request.images) <= self.capacity

    def _is_due(self) -> bool:
        return self._queued_images >= self.batch_size or not self._open

    def _work(self) -> None:
        parts: list[tuple[_Request, Tensor]] = []
        try:
            while parts := self._next_batch():
                self._predict(parts)
        except BaseException as error:
            self._fail(error, [request for request, _ in parts])
            raise

    def _predict(self, parts: list[tuple[_Request, Tensor]]) -> None:
        requests, images = zip(*parts, strict=True)
        try:
            predicted = self.adapter(torch.cat(images)).split([len(part) for part in images])
        except BaseException as error:
            self._predict_separately(parts, error)
            return
        for request, logits in zip(requests, predicted, strict=True):
            request.add(logits)

    def _fail(self, error: BaseException, current: list[_Request]) -> None:
        """Fail every pending future, so that nobody waits for a thread that has ended."""
        with self._changed:
            self._open, self._failure = False, error
            pending = [*current, *self._queue]
            self._queue.clear()
            self._queued_images = 0
            self._changed.notify_all()
        for request in pending:
            if not request.future.done():
                request.future.set_exception(TTCError(f"the worker of the stream failed ({error!r}); open another one"))

    def _predict_separately(self, parts: list[tuple[_Request, Tensor]], error: BaseException) -> None:
        """Predict the requests of a rejected batch one by one, so that an invalid one fails alone."""
        for request, images in parts:
            if request.future.done():
                continue
            try:
                if len(parts) == 1 or not isinstance(error, TTCError):
                    raise error
                request.add(self.adapter(images))
            except BaseException as own:
                request.future.set_exception(own)

    def _next_batch(self) -> list[tuple[_Request, Tensor]]:
        """Wait for the next micro-batch; empty when the stream is closed and the queue is empty."""
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._queue or not self._open)
                if not self._queue:
                    return []
                due = self._queue[0].arrived + self.max_wait
                self._changed.wait_for(self._is_due, max(0.0, due - time.monotonic()))
                parts = self._take_batch()
                self._changed.notify_all()
                if parts:
                    return parts

    def _take_batch(self) -> list[tuple[_Request, Tensor]]:
        """Take up to ``batch_size`` images of one shape, dtype and device from the front of the queue."""
        parts: list[tuple[_Request, Tensor]] = []
        room = self.batch_size
        while self._queue and room:
            request = self._queue[0]
            images = request.images[request.dispatched : request.dispatched + room]
            if parts and _layout(images) != _layout(parts[0][1]):
                break
            if request.dispatched == 0 and not request.future.set_running_or_notify_cancel():
                self._queued_images -= len(self._queue.popleft().images)  # cancelled while queued
                continue
            parts.append((request, images))
            request.dispatched += len(images)
            self._queued_images -= len(images)
            room -= len(images)
            if request.dispatched == len(request.images):
                self._queue.popleft()
        return parts


def _layout(images: Tensor) -> tuple[torch.Size, torch.dtype, torch.device]:
    return images.shape[1:], images.dtype, images.device
