from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

MakeImages = Callable[[int, int, int], NDArray[np.uint8]]


@pytest.fixture
def make_images() -> MakeImages:
    """Makes uint8 (n, height, width, 3) images with smooth parts, edges, and black, white and grey patches."""

    def make(n: int, height: int, width: int) -> NDArray[np.uint8]:
        rng = np.random.default_rng(7)
        rows, columns = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
        images = np.empty((n, height, width, 3), dtype=np.uint8)
        for image in images:
            for channel in range(3):
                a, b, c, d = rng.uniform(-9, 9, 4)
                wave = 128 + 90 * np.sin(a * rows + b * columns + c) * np.cos(d * rows) + rng.normal(0, 8, rows.shape)
                image[:, :, channel] = wave.clip(0, 255)
            for level in (0, 255, 128):
                top, left = rng.integers(0, (height * 3 // 4, width * 3 // 4))
                image[top : top + height // 4, left : left + width // 4] = level
        return images

    return make
