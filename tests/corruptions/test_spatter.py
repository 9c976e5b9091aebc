"""Spatter's parts against plain loops and SciPy, and the whole by how much it covers."""

import heapq
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import ndimage

from ttc.corruptions import corrupt
from ttc.corruptions.random_streams import RandomStreams
from ttc.corruptions.severity_tables import TableName
from ttc.corruptions.spatter import canny_edges, chamfer_distance, equalize_histogram, spatter

MakeImages = Callable[[int, int, int], NDArray[np.uint8]]


def canny_loop(grey: NDArray[np.int64], low: int, high: int) -> NDArray[np.bool_]:
    gx = ndimage.correlate(grey, np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]]), mode="nearest")
    gy = ndimage.correlate(grey, np.array([[-1, -2, -1], [0, 0, 0], [1, 2, 1]]), mode="nearest")
    size = np.pad(np.abs(gx) + np.abs(gy), 1)
    thin = np.zeros(grey.shape, dtype=bool)
    for i, j in np.ndindex(*grey.shape):
        here, x, y = size[i + 1, j + 1], gx[i, j], gy[i, j]
        angle = np.degrees(np.arctan2(abs(y), abs(x)))
        if angle < 22.5:
            top = here > size[i + 1, j] and here >= size[i + 1, j + 2]
        elif angle > 67.5:
            top = here > size[i, j + 1] and here >= size[i + 2, j + 1]
        else:
            side = -1 if (x < 0) != (y < 0) else 1
            top = here > size[i, j + 1 - side] and here > size[i + 2, j + 1 + side]
        thin[i, j] = here > low and top
    islands, _ = ndimage.label(thin, np.ones((3, 3)))
    strong = np.unique(islands[thin & (size[1:-1, 1:-1] > high)])
    return np.asarray(np.isin(islands, strong[strong > 0]))


def test_canny_edges_are_those_of_the_loop() -> None:
    rng = np.random.default_rng(0)
    grey = np.stack([ndimage.gaussian_filter(rng.normal(128, 300, (40, 48)), 1.5).clip(0, 255) for _ in range(3)])
    grey = grey.astype(np.int64)
    ours = canny_edges(torch.from_numpy(grey), 50, 150).numpy()
    expected = np.stack([canny_loop(one, 50, 150) for one in grey])
    np.testing.assert_array_equal(ours, expected)
    assert 0.02 < ours.mean() < 0.4


def shortest_paths(edges: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Dijkstra over king's and knight's moves, with the lengths of the 5 × 5 mask."""
    moves = {(0, 1): 1.0, (1, 0): 1.0, (1, 1): 1.4, (1, 2): 2.1969, (2, 1): 2.1969}
    distance = np.where(edges, 0.0, np.inf)
    queue = [(0.0, int(i), int(j)) for i, j in np.argwhere(edges)]
    while queue:
        far, i, j = heapq.heappop(queue)
        for (a, b), length in moves.items():
            for k, m in ((i + a, j + b), (i - a, j + b), (i + a, j - b), (i - a, j - b)):
                inside = 0 <= k < edges.shape[0] and 0 <= m < edges.shape[1]
                if inside and far + length < distance[k, m]:
                    distance[k, m] = far + length
                    heapq.heappush(queue, (far + length, k, m))
    return distance


@pytest.mark.parametrize("fraction", [0.002, 0.05])
def test_chamfer_distance_is_the_shortest_path_and_nearly_euclidean(fraction: float) -> None:
    edges = np.random.default_rng(1).random((2, 50, 40)) < fraction
    ours = chamfer_distance(torch.from_numpy(edges), 20).numpy()
    np.testing.assert_allclose(ours, np.stack([shortest_paths(one) for one in edges]).clip(max=20), atol=1e-3)
    euclid = np.stack([ndimage.distance_transform_edt(~one) for one in edges]).clip(max=20)
    np.testing.assert_allclose(ours, euclid, rtol=0.03)


def test_chamfer_distance_without_edges_is_the_cap() -> None:
    assert (chamfer_distance(torch.zeros(1, 5, 5, dtype=torch.bool), 7.5) == 7.5).all()


def test_equalized_spreads_the_levels() -> None:
    grey = np.random.default_rng(2).binomial(20, 0.4, (2, 30, 30)).astype(np.uint8) + 3
    ours = equalize_histogram(torch.from_numpy(grey)).numpy()
    for before, after in zip(grey, ours, strict=True):
        lowest = (before == before.min()).sum()
        for level in np.unique(before):
            fraction = ((before <= level).sum() - lowest) / (before.size - lowest)
            assert (after[before == level] == np.rint(255 * fraction)).all()
    flat = torch.full((1, 4, 4), 9, dtype=torch.uint8)
    assert torch.equal(equalize_histogram(flat), flat)


@pytest.mark.parametrize(
    ("table", "side", "wet"),
    [("cifar", 32, (0.03, 0.09, 0.32, 0.17, 0.32)), ("imagenet", 224, (0.04, 0.15, 0.24, 0.50, 0.57))],
)
def test_spatter_covers_what_it_should(table: TableName, side: int, wet: tuple[float, ...]) -> None:
    grey = np.full((6 if side == 224 else 60, side, side, 3), 100, dtype=np.uint8)
    for severity, fraction in enumerate(wet, start=1):
        touched = (corrupt(grey, "spatter", severity, table=table) != 100).any(3).mean()
        assert touched <= fraction + 0.05, severity
        assert touched >= (0.15 if severity > 3 else 0.5) * fraction - 0.01, severity  # mud loses its soft edges


def test_mud_is_brown_and_water_is_bright() -> None:
    grey = np.full((8, 64, 64, 3), 100, dtype=np.uint8)
    assert (corrupt(grey, "spatter", 3) >= 100).all()
    mud = corrupt(grey, "spatter", 5)
    assert (mud <= 100).all()
    assert [int(mud[..., c].min()) for c in range(3)] == pytest.approx([63, 42, 20], abs=1)


def test_a_dry_layer_leaves_the_image() -> None:
    images = torch.full((2, 3, 32, 32), 77, dtype=torch.uint8)
    chance = RandomStreams(0, "test", range(2), torch.device("cpu"))
    assert torch.equal(spatter(images, chance, 1.0, 0.1, 0.01, 0.7, 0.7, 0.5, 0), images)


def test_cover_scales_with_the_image() -> None:
    for severity in (2, 5):
        small, large = (
            (corrupt(np.full((n, side, side, 3), 100, np.uint8), "spatter", severity, table="cifar") != 100).mean()
            for n, side in ((60, 32), (30, 64))
        )
        assert small == pytest.approx(large, rel=0.5), severity
