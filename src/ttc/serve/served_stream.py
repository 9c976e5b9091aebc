"""One stream of a server: an adapter, its guard, the queue of micro-batches, and its folder."""

import asyncio
import logging
import math
import threading
import time
import weakref
from concurrent.futures import Future
from typing import Any

import torch
from torch import Tensor

from ttc.core import Adapter
from ttc.core.entropy import softmax_entropy
from ttc.deploy import Guard, Stream
from ttc.deploy.guard import MODES
from ttc.errors import TTCError
from ttc.serve.request_images import RequestError
from ttc.serve.serve_settings import ServeSettings
from ttc.serve.stream_folder import SavedStream, StreamFolder
from ttc.serve.stream_history import StreamHistory

UNGUARDED = "unguarded"
_CODES = (*MODES, UNGUARDED)
log = logging.getLogger("ttc.serve")


class ServedStream:
    """Predicts the images of one stream in order of arrival, and saves what it learned.

    Args:
        name: Its name.
        predictor: A new guard or adapter; what was saved is restored into it.
        folder: Where it is saved.
        settings: Sizes and limits.

    Raises:
        TTCError: If what was saved cannot be restored.
    """

    def __init__(self, name: str, predictor: Guard | Adapter, folder: StreamFolder, settings: ServeSettings) -> None:
        self.name, self.predictor, self.folder, self.settings = name, predictor, folder, settings
        self._device = (predictor.adapter if isinstance(predictor, Guard) else predictor).device
        saved = folder.restore(predictor)
        self.images, self.saved_images = saved.images, saved.images
        self.history = StreamHistory(saved.history, saved.interval)
        self.mode, self.stats = self._current_mode(), self._current_stats()
        self.users = 0  # requests that hold this stream; it is not evicted while there are any
        self.waiting = 0  # images submitted and not yet predicted
        self.failed_saves = 0
        self.last_used = time.time()
        self._saving = threading.Lock()
        this = weakref.ref(self)  # the thread must not keep an evicted stream in memory

        def predict_batch(images: Tensor) -> Tensor:
            served = this()
            assert served is not None
            return served._predict_batch(images)

        self.queue = Stream(
            predict_batch,
            batch_size=settings.batch_size,
            max_wait=settings.max_wait,
            capacity=max(settings.max_queued, settings.max_images),
        )

    async def predict(self, images: Tensor) -> tuple[Tensor, str]:
        """Predict a batch, together with those of other requests.

        Args:
            images: Images (N, 3, H, W).

        Returns:
            Probabilities (N, K), and the mode in which the last of them was predicted.

        Raises:
            RequestError: If too many images wait.
            TTCError: If the images are rejected, or the stream has failed.
        """
        count = len(images)
        if self.waiting and self.waiting + count > self.settings.max_queued:
            raise RequestError(429, f"{self.waiting} images of this stream are waiting: send more slowly", 1)
        self.last_used = time.time()
        self.waiting += count
        try:
            rows = await asyncio.wrap_future(self._submit(images))
        finally:
            self.waiting -= count
        return rows[:, :-1], _CODES[int(rows[-1, -1])]

    def _submit(self, images: Tensor) -> Future[Tensor]:
        try:
            return self.queue.submit(images.to(self._device), timeout=0)
        except TTCError as error:
            if self.has_failed:
                raise
            raise RequestError(429, "too many images of this stream are waiting: send more slowly", 1) from error

    def save(self) -> None:
        """Save everything that changed.

        Raises:
            Exception: If the disk does not allow it; what was saved before is then still complete.
        """
        with self._saving:
            if self.images == self.saved_images:
                return
            self.folder.save(
                self.predictor, SavedStream(self.images, tuple(self.history.points), self.history.interval)
            )
            self.saved_images = self.images

    def close(self) -> None:
        """Predict what is queued, save and stop.

        Raises:
            Exception: If it cannot be saved; the stream then still works unless something was queued.
        """
        self.save()
        self.queue.close()
        self.save()

    @property
    def has_failed(self) -> bool:
        """Whether the thread of the queue has ended: nothing is predicted any more."""
        return not self.queue.is_open

    def status(self) -> dict[str, Any]:
        """Return what the status page shows, as JSON values."""
        return {
            "name": self.name,
            "mode": self.mode,
            "images": self.images,
            "saved_images": self.saved_images,
            "waiting": self.waiting,
            "failed_saves": self.failed_saves,
            "last_used": round(self.last_used, 1),
            "stats": {name: value if math.isfinite(value) else None for name, value in self.stats.items()},
            "events": [event._asdict() for event in list(self._events())[-5:]],
            "history": list(self.history.points),
        }

    def _predict_batch(self, images: Tensor) -> Tensor:
        """Predict a micro-batch on the thread of the queue: probabilities, and the mode in the last column."""
        logits = self.predictor(images).double()
        probabilities = logits.softmax(1).cpu()
        self.images += len(images)
        self.mode, self.stats = self._current_mode(), self._current_stats()
        self.history.add(self.images, len(images), self.mode, self._signals(logits.cpu(), probabilities))
        if self.images - self.saved_images >= self.settings.save_every:
            self._save_or_log()
        code = torch.full((len(images), 1), float(_CODES.index(self.mode)), dtype=probabilities.dtype)
        return torch.cat([probabilities, code], dim=1)

    def _signals(self, logits: Tensor, probabilities: Tensor) -> dict[str, float]:
        """Return what moves with accuracy and needs no labels."""
        found = {
            "confidence": float(probabilities.amax(1).mean()),
            "entropy": float(softmax_entropy(logits).mean()),
        }
        for name in ("disagreement", "effective_classes"):
            if name in self.stats:
                found[name] = self.stats[name]
        return found

    def _save_or_log(self) -> None:
        """Save, but never lose a prediction for it: a full disk is reported, and tried again with the next batch."""
        try:
            self.save()
        except Exception as error:  # torch and safetensors have errors of their own for a full disk
            self.failed_saves += 1
            log.error("the stream %s cannot be saved: %s", self.name, error)

    def _current_mode(self) -> str:
        return self.predictor.mode if isinstance(self.predictor, Guard) else UNGUARDED

    def _current_stats(self) -> dict[str, float]:
        return self.predictor.stats if isinstance(self.predictor, Guard) else {}

    def _events(self) -> list[Any]:
        return list(self.predictor.events) if isinstance(self.predictor, Guard) else []
