"""Snow, frost and fog against literal transcriptions fed with the same random numbers."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from tests.corruptions.conftest import MakeImages
from tests.corruptions.reference import assert_equal_up_to_rounding, motion_loop, streams
from ttc.corruptions import SEVERITIES, TABLES, corrupt
from ttc.corruptions.frost_textures import FILES
from ttc.corruptions.weather import plasma


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
        assert_equal_up_to_rounding(corrupt(images, "snow", severity), np.stack(expected), 0.02)


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
        assert_equal_up_to_rounding(corrupt(images, "fog", severity), (foggy * 255).astype(np.uint8), 1e-3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i, name in enumerate(FILES):
        Image.fromarray(np.full((300, 400, 3), (200, 40 * i, 10), dtype=np.uint8)).save(tmp_path / name, quality=100)
    return tmp_path


@pytest.mark.parametrize("side", [32, 224])
def test_images_of_a_folder_are_blended_with_equal_probability(folder: Path, side: int) -> None:
    black = np.zeros((60, side, side, 3), dtype=np.uint8)
    frosted = corrupt(black, "frost", 5, frost_dir=str(folder))
    weight = 0.45 if side == 32 else 0.75
    assert (np.abs(frosted[..., 0].astype(float) - 200 * weight) <= 2).all()  # red stays red
    chosen = np.rint(frosted[:, 0, 0, 1] / weight / 40).astype(int)
    assert set(chosen) == set(range(5))


def test_fog_leaves_black() -> None:
    black = np.zeros((1, 32, 32, 3), dtype=np.uint8)
    for severity in SEVERITIES:
        assert (corrupt(black, "fog", severity) == 0).all()
