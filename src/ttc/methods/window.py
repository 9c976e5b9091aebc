"""A sliding window of recent images: small batches are predicted and learned from as parts of a large one."""

from typing import Any

import torch
from torch import Tensor

from ttc.core.adapter import Adapter
from ttc.core.outlier_check import OutlierCheck
from ttc.core.part import share_parts_
from ttc.core.processes import Processes
from ttc.core.state import Snapshot
from ttc.core.statistics import updates_statistics
from ttc.errors import TTCError


class WindowAdapter(Adapter):
    """Predicts each batch among the last ``size`` images of the stream, and learns from every image once.

    The base method predicts the recent images together with the new ones, and the rows of the new ones are returned.
    When ``size`` images have arrived that it has not learned from, it adapts to those as to one batch. So it learns as
    it would from batches of ``size`` images, and larger batches pass through unchanged.

    The window is part of the state: its images are in memory, in state dicts and in saved files. Images of another
    shape start a new window, and an outlier leaves it (:class:`ttc.core.outlier_check.OutlierCheck`). If the second
    batch is far from the first, it is predicted alone, and the third tells which of them leaves the window.

    Args:
        base: The adapter that predicts and learns.
        size: The number of recent images in the window.
    """

    state_attributes = ("base", "images", "fresh", "newest", "check")

    def __init__(self, base: Adapter, size: int) -> None:
        super().__init__(base.model)
        self.base, self.size = base, size
        self.images: Tensor | None = None  # the last ones, at most ``size``
        self.fresh = 0  # of these, how many have not been learned from
        self.newest = 0  # of these, how many came with the last batch
        self.check = OutlierCheck()

    def adapt(self, x: Tensor) -> Tensor:
        """Return the rows of ``x`` in the base method's prediction for the window.

        If the window is rejected, the fault may be an earlier image's: ``x`` then starts a new window.
        """
        x = self.processes.join(x)  # every process stores the whole window
        networks = self._all_networks()
        before = self.images, self.fresh, Snapshot(networks) if updates_statistics(networks) else None
        try:
            return self._adapt(x)
        except TTCError:
            if self.images is None:
                raise
            if before[2] is not None:
                before[2].restore(networks)
            self.images, self.fresh = None, 0
            try:
                return self._adapt(x)
            except BaseException:
                self.images, self.fresh = before[:2]
                raise

    def _adapt(self, x: Tensor) -> Tensor:
        fresh = self._fresh(x)
        learn = fresh >= self.size and not (len(x) < self.size and self.check.is_second_and_far(x))
        if learn:
            with self.processes.split(self.context(x)) as shard:
                logits = self.base.adapt(shard)
        else:
            with torch.no_grad():
                logits = self._infer(x)
        self.images = self._joined(x)[-self.size :].clone()  # a copy: a view would keep all of a large batch
        self.fresh, self.newest = 0 if learn else min(fresh, self.size), min(len(x), self.size)
        self.check.include(x)
        return logits[-len(x) :]

    def check_state(self, state: dict[str, Any]) -> None:
        """Check that the window contains images, no more than there are places."""
        images, fresh = state["images"], state["fresh"]
        if images is not None and not (
            isinstance(images, Tensor)
            and images.ndim >= 2
            and 0 < len(images) <= self.size
            and images.is_floating_point()
        ):
            raise ValueError(f"the window contains up to {self.size} images")
        if not 0 <= fresh <= (0 if images is None else len(images)):
            raise ValueError(f"{fresh} images cannot be new in this window")
        if not 0 <= state["newest"] <= (0 if images is None else len(images)):
            raise ValueError(f"{state['newest']} images of this window cannot have come last")

    def infer(self, x: Tensor) -> Tensor:
        """Return the rows of ``x`` in the base method's prediction for the window, which stays as it is."""
        x = self.processes.join(x)
        return self._infer(x)[-len(x) :]

    def _infer(self, x: Tensor) -> Tensor:
        with self.processes.split(self.context(x) if self.base.uses_batch else x) as shard:
            return self.base.infer(shard)

    def share_stream_(self, processes: Processes) -> None:
        """Share a stream: every process has the same window, of which it predicts a shard."""
        share_parts_(self, processes)

    def context(self, x: Tensor) -> Tensor:
        """Return the window with ``x`` at its end: the last ``size`` images, and all that were not learned from yet.

        If ``x`` is the second batch and far from the first, it is ``x`` alone.
        """
        if self.check.is_second_and_far(x):
            return x
        return self._joined(x)[-max(self.size, self._fresh(x)) :]

    @property
    def recent_images(self) -> Tensor | None:
        """The images in the window."""
        return self.images

    @property
    def export_base(self) -> Adapter:
        """The base method, which predicts the images in the window."""
        return self.base.export_base

    def _recent(self, x: Tensor) -> tuple[list[Tensor], int]:
        """Return the window that ``x`` joins, and how many of its images have not been learned from."""
        if self.images is None or self.images.shape[1:] != x.shape[1:]:
            return [], 0
        if self.check.is_contradicted_by(x):
            return [self.images[: len(self.images) - self.newest]], max(0, self.fresh - self.newest)
        if self.check.shows_first_as_outlier(x):
            return [self.images[-self.newest :]], min(self.fresh, self.newest)
        return [self.images], self.fresh

    def _joined(self, x: Tensor) -> Tensor:
        return torch.cat([*self._recent(x)[0], x])

    def _fresh(self, x: Tensor) -> int:
        return len(x) + self._recent(x)[1]
