"""The life of a stream in a bounded number of points: modes and label-free signs of accuracy over time."""

import math
import time
from collections.abc import Iterable, Mapping
from typing import Any

FIRST_INTERVAL = 20  # images between two points, at first
MOST_POINTS = 240


class StreamHistory:
    """Averages over intervals of images; when there are too many points, every second is dropped.

    Args:
        points: Points of an earlier run.
        interval: Their interval.

    Example:
        >>> history = StreamHistory()
        >>> for images in range(0, 20 * 1000, 20):
        ...     history.add(images, 20, "adapting", {"confidence": 0.5})
        >>> len(history.points) <= MOST_POINTS, history.interval
        (True, 160)
    """

    def __init__(self, points: Iterable[Mapping[str, Any]] = (), interval: int = 0) -> None:
        self.points = [dict(point) for point in points]
        self.interval = interval or FIRST_INTERVAL
        self._images = 0
        self._sums: dict[str, float] = {}

    def add(self, total: int, images: int, mode: str, values: Mapping[str, float]) -> None:
        """Include a batch.

        Args:
            total: Images of the stream so far.
            images: Images of the batch.
            mode: How it was predicted.
            values: Means over its images, by name.
        """
        self._images += images
        for name, value in values.items():
            if math.isfinite(value):
                self._sums[name] = self._sums.get(name, 0.0) + value * images
        if self._images < self.interval:
            return
        means = {name: round(value / self._images, 5) for name, value in self._sums.items()}
        self.points.append({"images": total, "time": round(time.time(), 1), "mode": mode, **means})
        self._images, self._sums = 0, {}
        if len(self.points) > MOST_POINTS:
            self.points = self.points[::2]
            self.interval *= 2
