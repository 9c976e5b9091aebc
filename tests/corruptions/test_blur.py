"""Blurs against SciPy, and against literal loops fed with the same random numbers."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import ndimage

from tests.corruptions.conftest import MakeImages
from tests.corruptions.reference import BOTH, assert_equal_up_to_rounding, check, motion_loop, streams, to_bytes
from ttc.corruptions import SEVERITIES, TABLES, corrupt
from ttc.corruptions.blur import disk_kernel, shuffled_origin
from ttc.corruptions.severity_tables import TableName


@pytest.mark.parametrize("table", BOTH)
def test_gaussian_blur(make_images: MakeImages, table: TableName) -> None:
    def reference(image: NDArray[np.uint8], sigma: float) -> NDArray[np.uint8]:
        return to_bytes(ndimage.gaussian_filter(image / 255.0, (sigma, sigma, 0), mode="nearest", truncate=4.0))

    check(make_images, "gaussian_blur", table, reference, differing=1e-4)


def reference_disk(radius: float, softness: float) -> NDArray[np.float64]:
    grid = np.arange(-8, 9) if radius <= 8 else np.arange(-radius, radius + 1)
    disk = np.array([[float(i * i + j * j <= radius**2) for j in grid] for i in grid])
    reach = 1 if radius <= 8 else 2
    bell = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * softness**2))
    kernel = ndimage.correlate(disk / disk.sum(), np.outer(bell, bell) / bell.sum() ** 2, mode="mirror")
    return np.asarray(kernel)


@pytest.mark.parametrize("table", BOTH)
def test_defocus_blur(make_images: MakeImages, table: TableName) -> None:
    def reference(image: NDArray[np.uint8], radius: float, softness: float) -> NDArray[np.uint8]:
        kernel = reference_disk(radius, softness)[:, :, None]
        return to_bytes(ndimage.correlate(image / 255.0, kernel, mode="mirror"))

    # whole numbers, as in patches of one colour, fall to either side with the last bits of the kernel
    check(make_images, "defocus_blur", table, reference, differing=0.25)


@pytest.mark.parametrize(
    ("radius", "ones"), [(0.3, 1), (1, 5), (1.5, 9), (3, 29), (4, 49), (6, 113), (8, 197), (10, 317)]
)
def test_disk_kernel_is_the_reference_without_its_margin(radius: float, ones: int) -> None:
    kernel = disk_kernel(radius, 1e-3)
    assert int((kernel > 0).sum()) == ones
    soft, expected = disk_kernel(radius, 0.5).numpy(), reference_disk(radius, 0.5)
    margin = (len(expected) - len(soft)) // 2
    np.testing.assert_allclose(np.pad(soft, margin), expected, atol=1e-7)


@pytest.mark.parametrize(("radius", "total"), [(6, 1.0), (8, 1.0130), (10, 1.0108)])
def test_disk_kernels_that_touch_the_grid_brighten(radius: float, total: float) -> None:
    assert disk_kernel(radius, 0.5).sum().item() == pytest.approx(total, abs=5e-5)


def test_defocus_spreads_a_point_into_its_kernel() -> None:
    image = np.zeros((1, 32, 32, 3), dtype=np.uint8)
    image[0, 16, 16] = 255
    spread = corrupt(image, "defocus_blur", 5)[0, 14:19, 14:19, 0]
    expected = reference_disk(1.5, 0.1)[6:11, 6:11]
    np.testing.assert_allclose(spread / 255.0, expected, atol=1 / 255)


def reference_zoom(image: NDArray[np.float32], factor: float) -> NDArray[np.float32]:
    side = image.shape[0]
    crop = math.ceil(side / factor)
    top = (side - crop) // 2
    enlarged = ndimage.zoom(image[top : top + crop, top : top + crop], (factor, factor, 1), order=1)
    cut = (enlarged.shape[0] - side) // 2
    return np.asarray(enlarged[cut : cut + side, cut : cut + side])


LAST_FACTORS = {"cifar": (1.06, 1.11, 1.15, 1.20, 1.25), "imagenet": (1.11, 1.15, 1.20, 1.24, 1.30)}


@pytest.mark.parametrize("radius", [3, 10])
def test_disk_kernel_is_the_same_on_every_processor(radius: int) -> None:
    """It equals sums without any rounding but the last; sums in float32 depend on the processor."""
    half, reach = max(radius, 8), 1 if radius <= 8 else 2
    disk = np.array([[i * i + j * j <= radius**2 for j in range(-half, half + 1)] for i in range(-half, half + 1)])
    area = np.float32(1) / np.float32(disk.sum())
    bell = [math.exp(-0.5 * (i / 0.5) ** 2) for i in range(-reach, reach + 1)]
    weights = [Fraction(float(np.float32(one / math.fsum(bell)))) for one in bell]
    padded = np.pad(np.where(disk, area, np.float32(0)), reach, mode="reflect")
    exact = [
        float(
            sum(
                weights[i] * weights[j] * Fraction(float(padded[row + i, column + j]))
                for i in range(2 * reach + 1)
                for j in range(2 * reach + 1)
            )
        )
        for row in range(2 * half + 1)
        for column in range(2 * half + 1)
    ]
    expected = np.array(exact).astype(np.float32).reshape(2 * half + 1, -1)
    margin = int(np.nonzero(expected.sum(1))[0][0])
    inner = slice(margin, len(expected) - margin)
    assert np.array_equal(disk_kernel(radius, 0.5).numpy(), expected[inner, inner])


@pytest.mark.parametrize("table", BOTH)
def test_zoom_blur(make_images: MakeImages, table: TableName) -> None:
    lasts = iter(np.repeat(LAST_FACTORS[table], 2))

    def reference(image: NDArray[np.uint8], step: float, count: float) -> NDArray[np.uint8]:
        unit = (image / 255.0).astype(np.float32)
        factors = np.arange(1, next(lasts) + step / 2, step)
        assert len(factors) == count
        total = np.zeros_like(unit)
        for factor in factors:
            total += reference_zoom(unit, factor)
        return to_bytes((unit + total) / (len(factors) + 1))

    check(make_images, "zoom_blur", table, reference, differing=0.2)  # patches of one colour fall to either side


def glass_loop(offset: NDArray[np.int64], reach: int) -> NDArray[np.int64]:
    """The published loop on pixel numbers: copying, from the bottom right."""
    _, height, width = offset.shape
    pixel = np.arange(height * width).reshape(height, width)
    for row in range(height - reach, reach, -1):
        for column in range(width - reach, reach, -1):
            pixel[row, column] = pixel[row + offset[0, row, column], column + offset[1, row, column]]
    return pixel


@pytest.mark.parametrize(("reach", "height", "width"), [(1, 32, 32), (2, 40, 32), (3, 30, 50), (4, 64, 64)])
def test_glass_origin_is_the_sequential_loop(reach: int, height: int, width: int) -> None:
    origin = shuffled_origin(streams("glass_blur", 5, 3), height, width, reach)
    draw = streams("glass_blur", 5, 3).uniform(2, height, width, dtype=torch.float32)
    offset = np.floor(draw.numpy() * 2 * reach).astype(np.int64) - reach
    assert offset.min() == -reach
    assert offset.max() == reach - 1
    expected = np.stack([glass_loop(one, reach) for one in offset])
    np.testing.assert_array_equal(origin.reshape(3, height, width).numpy(), expected)


def test_glass_blur_one_only_copies(make_images: MakeImages) -> None:
    images = make_images(2, 32, 32)
    glass = corrupt(images, "glass_blur", 1)  # σ too small to blur
    np.testing.assert_array_equal(glass[:, :2], images[:, :2])
    np.testing.assert_array_equal(glass[:, :, :2], images[:, :, :2])
    assert (glass[:, 2:, 2:] != images[:, 2:, 2:]).mean() > 0.3


@pytest.mark.parametrize("table", ["cifar", "imagenet"])
def test_motion_blur(make_images: MakeImages, table: TableName) -> None:
    images = make_images(2, TABLES[table].side, TABLES[table].side)
    for severity in SEVERITIES:
        radius, sigma = TABLES[table].parameters["motion_blur"][severity - 1]
        angles = streams("motion_blur", severity, 2).uniform(1)[:, 0].numpy() * 90 - 45
        expected = np.stack([motion_loop(x, radius, sigma, angle) for x, angle in zip(images, angles, strict=True)])
        assert_equal_up_to_rounding(corrupt(images, "motion_blur", severity, table=table), expected, 1e-3)


def test_zoom_blur_leaves_a_uniform_image() -> None:
    grey = np.full((1, 32, 32, 3), 100, dtype=np.uint8)
    for severity in SEVERITIES:
        assert np.abs(corrupt(grey, "zoom_blur", severity).astype(int) - 100).max() <= 1
