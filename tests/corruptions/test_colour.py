"""Brightness, saturation and contrast against the standard library and NumPy."""

import colorsys
import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.corruptions.conftest import MakeImages
from tests.corruptions.reference import BOTH, check, to_bytes
from ttc.corruptions import SEVERITIES, corrupt
from ttc.corruptions.severity_tables import TableName


@pytest.mark.parametrize("table", BOTH)
def test_contrast(make_images: MakeImages, table: TableName) -> None:
    def reference(image: NDArray[np.uint8], factor: float) -> NDArray[np.uint8]:
        unit = image / 255.0
        mean = unit.mean(axis=(0, 1), keepdims=True)
        return to_bytes((unit - mean) * factor + mean)

    check(make_images, "contrast", table, reference, differing=1e-3)


def through_hsv(image: NDArray[np.uint8], change: Callable[[float, float], tuple[float, float]]) -> NDArray[np.uint8]:
    """Each pixel's (saturation, value) changed, by the standard library."""
    colours, place = np.unique(image.reshape(-1, 3), axis=0, return_inverse=True)
    changed = []
    for red, green, blue in colours / 255.0:
        hue, saturation, value = colorsys.rgb_to_hsv(red, green, blue)
        changed.append(colorsys.hsv_to_rgb(hue, *change(saturation, value)))
    return to_bytes(np.array(changed))[place.ravel()].reshape(image.shape)


def clip(value: float) -> float:
    return min(max(value, 0.0), 1.0)


@pytest.mark.parametrize("table", BOTH)
def test_brightness(make_images: MakeImages, table: TableName) -> None:
    def reference(image: NDArray[np.uint8], offset: float) -> NDArray[np.uint8]:
        return through_hsv(image, lambda s, v: (s, clip(v + offset)))

    check(make_images, "brightness", table, reference, differing=0.02, side=32)


@pytest.mark.parametrize("table", BOTH)
def test_saturate(make_images: MakeImages, table: TableName) -> None:
    def reference(image: NDArray[np.uint8], factor: float, offset: float) -> NDArray[np.uint8]:
        return through_hsv(image, lambda s, v: (clip(s * factor + offset), v))

    # factors such as 1.5 and 2 meet whole numbers, where the last bits of the hue decide
    check(make_images, "saturate", table, reference, differing=0.04, side=32)


def test_saturate_two_is_nearly_grey(make_images: MakeImages) -> None:
    assert np.ptp(corrupt(make_images(1, 32, 32), "saturate", 2), axis=3).max() <= 0.1 * 255 + 1


def test_contrast_leaves_a_uniform_image() -> None:
    grey = np.full((1, 32, 32, 3), 100, dtype=np.uint8)
    for severity in SEVERITIES:
        assert np.ptp(corrupt(grey, "contrast", severity)) <= 1


def test_brightness_of_black_is_the_offset() -> None:
    black = np.zeros((1, 32, 32, 3), dtype=np.uint8)
    for severity, offset in zip(SEVERITIES, (0.05, 0.1, 0.15, 0.2, 0.3), strict=True):
        assert (corrupt(black, "brightness", severity) == math.floor(255 * offset)).all()
