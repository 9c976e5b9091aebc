"""Corruptions without chance agree with an independent implementation, one image at a time, in SciPy and Pillow."""

import colorsys
import io
import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from ttc.corruptions import SEVERITIES, TABLES, corrupt
from ttc.corruptions.blur import disk_kernel
from ttc.corruptions.severity_tables import TableName

MakeImages = Callable[[int, int, int], NDArray[np.uint8]]
Unit = NDArray[np.float64]
BOTH: tuple[TableName, ...] = ("cifar", "imagenet")


def to_bytes(unit: Unit) -> NDArray[np.uint8]:
    return (np.clip(unit, 0, 1) * 255).astype(np.uint8)


def check(
    make_images: MakeImages,
    corruption: str,
    table: TableName,
    reference: Callable[..., NDArray[np.uint8]],
    differing: float = 0.0,
    side: int | None = None,
) -> None:
    """At most the share ``differing`` of the elements is one level off, none is further off."""
    side = side or TABLES[table].side
    images = make_images(2, side, side)
    for severity in SEVERITIES:
        parameters = TABLES[table].parameters[corruption][severity - 1]
        expected = np.stack([reference(image, *parameters) for image in images])
        difference = np.abs(corrupt(images, corruption, severity, table=table).astype(int) - expected)
        assert difference.max() <= 1, (severity, difference.max())
        assert (difference > 0).mean() <= differing, (severity, (difference > 0).mean())


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


@pytest.mark.parametrize("table", BOTH)
def test_pixelate(make_images: MakeImages, table: TableName) -> None:
    def reference(image: NDArray[np.uint8], share: float) -> NDArray[np.uint8]:
        side = image.shape[0]
        small = Image.fromarray(image).resize((int(side * share),) * 2, Image.Resampling.BOX)
        return np.asarray(small.resize((side, side), Image.Resampling.NEAREST))

    check(make_images, "pixelate", table, reference)


@pytest.mark.parametrize("table", BOTH)
def test_jpeg_compression(make_images: MakeImages, table: TableName) -> None:
    def reference(image: NDArray[np.uint8], quality: float) -> NDArray[np.uint8]:
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "JPEG", quality=int(quality), subsampling="4:2:0")
        return np.asarray(Image.open(buffer))

    check(make_images, "jpeg_compression", table, reference)


def test_simple_pictures() -> None:
    grey = np.full((1, 32, 32, 3), 100, dtype=np.uint8)
    black = np.zeros((1, 32, 32, 3), dtype=np.uint8)
    for severity, offset in zip(SEVERITIES, (0.05, 0.1, 0.15, 0.2, 0.3), strict=True):
        assert np.ptp(corrupt(grey, "contrast", severity)) <= 1
        assert np.abs(corrupt(grey, "zoom_blur", severity).astype(int) - 100).max() <= 1
        assert (corrupt(black, "brightness", severity) == math.floor(255 * offset)).all()
        assert (corrupt(black, "fog", severity) == 0).all()


def test_saturate_two_is_nearly_grey(make_images: MakeImages) -> None:
    assert np.ptp(corrupt(make_images(1, 32, 32), "saturate", 2), axis=3).max() <= 0.1 * 255 + 1


def test_pixelate_five_has_twenty_blocks_a_side(make_images: MakeImages) -> None:
    row = corrupt(make_images(1, 32, 32), "pixelate", 5)[0, 0].astype(int)
    assert (np.abs(np.diff(row, axis=0)).sum(1) > 0).sum() <= 19
