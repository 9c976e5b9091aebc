"""Pixelation, JPEG and elastic transform against Pillow and SciPy."""

import io

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from tests.corruptions.conftest import MakeImages
from tests.corruptions.reference import BOTH, assert_equal_up_to_rounding, check, streams
from ttc.corruptions import SEVERITIES, TABLES, corrupt
from ttc.corruptions.severity_tables import TableName


@pytest.mark.parametrize("table", BOTH)
def test_pixelate(make_images: MakeImages, table: TableName) -> None:
    def reference(image: NDArray[np.uint8], fraction: float) -> NDArray[np.uint8]:
        side = image.shape[0]
        small = Image.fromarray(image).resize((int(side * fraction),) * 2, Image.Resampling.BOX)
        return np.asarray(small.resize((side, side), Image.Resampling.NEAREST))

    check(make_images, "pixelate", table, reference)


@pytest.mark.parametrize("table", BOTH)
def test_jpeg_compression(make_images: MakeImages, table: TableName) -> None:
    def reference(image: NDArray[np.uint8], quality: float) -> NDArray[np.uint8]:
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "JPEG", quality=int(quality), subsampling="4:2:0")
        return np.asarray(Image.open(buffer))

    check(make_images, "jpeg_compression", table, reference)


def test_pixelate_five_has_twenty_blocks_per_side(make_images: MakeImages) -> None:
    row = corrupt(make_images(1, 32, 32), "pixelate", 5)[0, 0].astype(int)
    assert (np.abs(np.diff(row, axis=0)).sum(1) > 0).sum() <= 19


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
        assert_equal_up_to_rounding(ours, np.stack(expected), 0.15)  # patches of one colour fall to either side


def test_elastic_displacement_scales() -> None:
    """On a ramp the change of grey is the displacement: a fraction of the side at both sizes."""
    deviations = []
    for side in (64, 128):
        ramp = np.broadcast_to(np.linspace(0, 255, side)[:, None], (12, side, side, 3)).astype(np.uint8)
        unlike = corrupt(ramp, "elastic_transform", 5, table="cifar").astype(float) - ramp
        middle = unlike[:, side // 4 : -side // 4, side // 4 : -side // 4, 0]
        smooth = middle.mean((1, 2), keepdims=True)  # the affine part, nearly
        deviations.append((middle - smooth).std())
    assert deviations[0] == pytest.approx(deviations[1], rel=0.2)
