"""Corruptions with chance: their distributions, and literal transcriptions fed with the same random numbers."""

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import ndimage, stats

from ttc.corruptions import SEVERITIES, TABLES, corrupt
from ttc.corruptions.blur import shuffled_origin
from ttc.corruptions.filters import motion_filter
from ttc.corruptions.random_streams import RandomStreams
from ttc.corruptions.severity_tables import TableName
from ttc.corruptions.weather import plasma

MakeImages = Callable[[int, int, int], NDArray[np.uint8]]
GREY = {
    ("gaussian_noise", "cifar"): (0.040, 0.060, 0.080, 0.090, 0.100),
    ("gaussian_noise", "imagenet"): (0.080, 0.120, 0.179, 0.247, 0.317),
    ("shot_noise", "cifar"): (0.032, 0.045, 0.071, 0.082, 0.100),
    ("shot_noise", "imagenet"): (0.091, 0.141, 0.201, 0.288, 0.345),
}
CPU = torch.device("cpu")


def streams(corruption: str, severity: int, n: int) -> RandomStreams:
    return RandomStreams(0, f"{corruption}/{severity}", range(n), CPU)


@pytest.mark.parametrize(("corruption", "table"), list(GREY))
def test_noise_on_grey(corruption: str, table: TableName) -> None:
    grey = np.full((40, 32, 32, 3), 128, dtype=np.uint8)
    for severity, deviation in zip(SEVERITIES, GREY[corruption, table], strict=True):
        noisy = corrupt(grey, corruption, severity, table=table) / 255
        assert noisy.std() == pytest.approx(deviation, rel=0.02), severity
        if table == "cifar":
            assert noisy.mean() == pytest.approx(128 / 255 - 0.5 / 255, abs=0.003)


@pytest.mark.parametrize("level", [0, 3, 60, 255])
def test_shot_noise_counts_are_poisson(level: int) -> None:
    images = np.full((60, 32, 32, 3), level, dtype=np.uint8)
    noisy = corrupt(images, "shot_noise", 4, table="imagenet")  # five photons
    counts = np.bincount((noisy.astype(float) / 51).round().astype(int).ravel(), minlength=6)  # 255/5 a photon
    poisson = stats.poisson(5 * level / 255)
    expected = np.append(poisson.pmf(range(5)), poisson.sf(4)) * noisy.size
    kept = expected > 5
    assert counts[~kept].sum() <= 30
    if level:
        assert stats.chisquare(counts[kept], expected[kept] * counts[kept].sum() / expected[kept].sum()).pvalue > 1e-4
    else:
        assert (noisy == 0).all()


def test_speckle_noise_grows_with_the_light() -> None:
    images = np.full((40, 32, 32, 3), 100, dtype=np.uint8)
    images[:20] = 50
    noisy = corrupt(images, "speckle_noise", 5).astype(float)
    assert noisy[:20].std() == pytest.approx(10, rel=0.03)
    assert noisy[20:].std() == pytest.approx(20, rel=0.03)


@pytest.mark.parametrize("table", ["cifar", "imagenet"])
def test_impulse_noise_share(table: TableName) -> None:
    grey = np.full((40, 32, 32, 3), 128, dtype=np.uint8)
    for severity, (amount,) in zip(SEVERITIES, TABLES[table].parameters["impulse_noise"], strict=True):
        noisy = corrupt(grey, "impulse_noise", severity, table=table)
        assert set(np.unique(noisy)) == {0, 128, 255}
        error = math.sqrt(amount * (1 - amount) / noisy.size)
        assert (noisy != 128).mean() == pytest.approx(amount, abs=3 * error)
        assert (noisy == 255).sum() / (noisy != 128).sum() == pytest.approx(0.5, abs=0.05)
        touched = (noisy != 128).any(3).mean()
        assert touched == pytest.approx(1 - (1 - amount) ** 3, rel=0.05)  # each channel by itself


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


def motion_loop(image: NDArray[np.uint8], radius: float, sigma: float, angle: float) -> NDArray[np.uint8]:
    taps = 2 * math.ceil(radius) + 1
    weights = np.exp(-(np.arange(taps) ** 2) / (2 * sigma**2))
    weights /= weights.sum()
    rows, columns = np.indices(image.shape[:2])
    total = np.zeros(image.shape)
    for i in range(taps):
        row = rows + math.ceil(i * math.sin(math.radians(angle)) - 0.5)
        column = columns + math.ceil(i * math.cos(math.radians(angle)) - 0.5)
        total += weights[i] * image[row.clip(0, image.shape[0] - 1), column.clip(0, image.shape[1] - 1)]
    return np.floor(total + 0.5).astype(np.uint8)


def same_but_for_rounding(ours: NDArray[np.uint8], expected: NDArray[np.uint8], differing: float) -> None:
    difference = np.abs(ours.astype(int) - expected)
    assert difference.max() <= 1
    assert (difference > 0).mean() <= differing


@pytest.mark.parametrize("table", ["cifar", "imagenet"])
def test_motion_blur(make_images: MakeImages, table: TableName) -> None:
    images = make_images(2, TABLES[table].side, TABLES[table].side)
    for severity in SEVERITIES:
        radius, sigma = TABLES[table].parameters["motion_blur"][severity - 1]
        angles = streams("motion_blur", severity, 2).uniform(1)[:, 0].numpy() * 90 - 45
        expected = np.stack([motion_loop(x, radius, sigma, angle) for x, angle in zip(images, angles, strict=True)])
        same_but_for_rounding(corrupt(images, "motion_blur", severity, table=table), expected, 1e-3)


def test_motion_leaves_a_trail_on_one_side() -> None:
    image = torch.zeros(1, 1, 9, 40, dtype=torch.uint8)
    image[0, 0, 4, 30] = 255
    trail = motion_filter(image, 9, 2.5, torch.tensor([0.0]))[0, 0]
    assert trail[4, 31:].sum() == 0
    assert trail[4, 30] > trail[4, 29] > trail[4, 27] > 0
    assert trail.sum() == trail[4].sum()


def test_snow(make_images: MakeImages) -> None:
    images = make_images(2, 32, 32)
    for severity in SEVERITIES:
        mean, deviation, zoom, threshold, radius, sigma, keep = TABLES["cifar"].parameters["snow"][severity - 1]
        chance = streams("snow", severity, 2)
        layers = chance.normal(32, 32).numpy() * np.float32(deviation) + np.float32(mean)
        angles = chance.uniform(1)[:, 0].numpy() * 90 - 135
        expected = []
        for image, layer, angle in zip(images, layers, angles, strict=True):
            crop = math.ceil(32 / zoom)
            top = (32 - crop) // 2
            grown = ndimage.zoom(layer[top : top + crop, top : top + crop], zoom, order=1)
            cut = (len(grown) - 32) // 2
            flakes = grown[cut : cut + 32, cut : cut + 32].copy()
            flakes[flakes < threshold] = 0
            blown = motion_loop((np.clip(flakes, 0, 1) * 255).astype(np.uint8), radius, sigma, angle) / 255
            unit = image / 255
            grey = unit @ [0.299, 0.587, 0.114]
            unit = keep * unit + (1 - keep) * np.maximum(unit, (1.5 * grey + 0.5)[:, :, None])
            white = (blown + np.rot90(blown, 2))[:, :, None]
            expected.append((np.clip(unit + white, 0, 1) * 255).astype(np.uint8))
        same_but_for_rounding(corrupt(images, "snow", severity), np.stack(expected), 0.02)


def diamond_square(size: int, decay: float, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """One pixel at a time, as taught; the number of a pixel is the one at its place."""
    field = np.zeros((size, size))

    def around(places: Iterator[tuple[int, int]]) -> float:
        return float(np.mean([field[i % size, j % size] for i, j in places]))

    step, wobble = size, 100.0
    while step >= 2:
        half = step // 2
        for i in range(half, size, step):
            for j in range(half, size, step):
                corners = ((i + a, j + b) for a in (-half, half) for b in (-half, half))
                field[i, j] = around(corners) + wobble * (2 * numbers[i, j] - 1) * wobble
        for i in range(0, size, half):
            for j in range((i + half) % step, size, step):
                cross = iter(((i - half, j), (i + half, j), (i, j - half), (i, j + half)))
                field[i, j] = around(cross) + wobble * (2 * numbers[i, j] - 1) * wobble
        step, wobble = half, wobble / decay
    field -= field.min()
    return np.asarray(field / field.max())


@pytest.mark.parametrize("decay", [3, 1.75])
def test_plasma_is_diamond_square(decay: float) -> None:
    numbers = np.random.default_rng(0).random((2, 16, 16))
    expected = np.stack([diamond_square(16, decay, one) for one in numbers])
    np.testing.assert_allclose(plasma(torch.from_numpy(numbers), decay).numpy(), expected, atol=1e-12)


def test_fog(make_images: MakeImages) -> None:
    images = make_images(2, 32, 32) // 2
    for severity in SEVERITIES:
        strength, decay = TABLES["cifar"].parameters["fog"][severity - 1]
        haze = plasma(streams("fog", severity, 2).uniform(32, 32), decay).numpy()
        brightest = images.max((1, 2, 3), keepdims=True) / 255
        foggy = (images / 255 + strength * haze[..., None]) * brightest / (brightest + strength)
        same_but_for_rounding(corrupt(images, "fog", severity), (foggy * 255).astype(np.uint8), 1e-3)


@pytest.mark.parametrize("table", ["cifar", "imagenet"])
def test_elastic_transform(make_images: MakeImages, table: TableName) -> None:
    side = TABLES[table].side
    images = make_images(2, side, side)
    for severity in SEVERITIES:
        alpha, sigma, jitter = TABLES[table].parameters["elastic_transform"][severity - 1]
        chance = streams("elastic_transform", severity, 2)
        shifts = (chance.uniform(3, 2).numpy() * 2 - 1) * jitter
        fields = chance.uniform(2, side, side).numpy() * 2 - 1
        expected = []
        for image, shift, field in zip(images, shifts, fields, strict=True):
            centre, arm = side // 2, side // 3
            old = np.array([(centre + a * arm, centre + b * arm, 1) for a, b in ((1, 1), (1, -1), (-1, -1))], float)
            new = old.copy()
            new[:, :2] += shift
            back = np.linalg.inv(np.linalg.solve(old, new).T)  # (column, row, 1) moved -> old
            rows, columns = np.indices((side, side))
            column, row, _ = np.tensordot(back, np.stack([columns, rows, np.ones_like(rows)]), 1)
            unit = (image / 255).astype(np.float32)
            warped = [ndimage.map_coordinates(unit[..., c], (row, column), order=1, mode="mirror") for c in range(3)]
            if alpha:
                dx, dy = (ndimage.gaussian_filter(f, sigma, mode="reflect", truncate=3) * alpha for f in field)
                place = (rows + dy, columns + dx)
                warped = [ndimage.map_coordinates(one, place, order=1, mode="reflect") for one in warped]
            expected.append((np.clip(np.stack(warped, -1), 0, 1) * 255).astype(np.uint8))
        ours = corrupt(images, "elastic_transform", severity, table=table)
        same_but_for_rounding(ours, np.stack(expected), 0.15)  # patches of one colour fall to either side
