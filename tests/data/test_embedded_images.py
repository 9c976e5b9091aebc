"""The images included in the package."""

import numpy as np

from ttc.data import embedded
from ttc.data.embedded_images import from_mosaic, mosaic


def test_two_thousand_images_of_ten_classes() -> None:
    images = embedded()
    assert (len(images), images.num_classes) == (2000, 10)
    assert images.pixels([0, 1999]).shape == (2, 32, 32, 3)
    counts = np.bincount(images.labels, minlength=10)
    assert counts.min() > 150
    assert images.pixels(range(2000)).std() > 40  # images, not an empty array


def test_images_are_cached_between_calls() -> None:
    assert embedded() is embedded()


def test_a_mosaic_is_lossless_and_keeps_the_order() -> None:
    images = np.random.default_rng(0).integers(0, 256, (100, 32, 32, 3), dtype=np.uint8)
    png = mosaic(images)
    assert png.startswith(b"\x89PNG")
    np.testing.assert_array_equal(from_mosaic(png), images)
