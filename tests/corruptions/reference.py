"""Independent implementations and comparisons shared by the tests of the corruptions."""

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from tests.corruptions.conftest import MakeImages
from ttc.corruptions import SEVERITIES, TABLES, corrupt
from ttc.corruptions.random_streams import RandomStreams
from ttc.corruptions.severity_tables import TableName

Unit = NDArray[np.float64]


BOTH: tuple[TableName, ...] = ("cifar", "imagenet")


CPU = torch.device("cpu")


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
    """At most the fraction ``differing`` of the elements is one level off, none is further off."""
    side = side or TABLES[table].side
    images = make_images(2, side, side)
    for severity in SEVERITIES:
        parameters = TABLES[table].parameters[corruption][severity - 1]
        expected = np.stack([reference(image, *parameters) for image in images])
        difference = np.abs(corrupt(images, corruption, severity, table=table).astype(int) - expected)
        assert difference.max() <= 1, (severity, difference.max())
        assert (difference > 0).mean() <= differing, (severity, (difference > 0).mean())


def streams(corruption: str, severity: int, n: int) -> RandomStreams:
    return RandomStreams(0, f"{corruption}/{severity}", range(n), CPU)


def assert_equal_up_to_rounding(ours: NDArray[np.uint8], expected: NDArray[np.uint8], differing: float) -> None:
    difference = np.abs(ours.astype(int) - expected)
    assert difference.max() <= 1
    assert (difference > 0).mean() <= differing


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
