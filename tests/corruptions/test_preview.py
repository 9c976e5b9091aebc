"""The contact sheet shows the corrupted images where its labels say."""

import numpy as np
import pytest

from tests.corruptions.conftest import MakeImages
from ttc.corruptions import corrupt
from ttc.corruptions.preview import contact_sheet


def test_cells_are_the_corrupted_images_enlarged(make_images: MakeImages) -> None:
    image = make_images(1, 32, 32)[0]
    done: list[int] = []
    names = ["fog", "spatter"]
    sheet = np.asarray(contact_sheet(image, names, seed=3, done=done.append))
    assert sum(done) == 10
    for row, name in enumerate(names):
        for severity in (1, 5):
            top, left = 240 + 166 * row, 216 + 166 * (severity - 1)
            cell = sheet[top : top + 160 : 5, left : left + 160 : 5]
            np.testing.assert_array_equal(cell, corrupt(image[None], name, severity, seed=3)[0])
    np.testing.assert_array_equal(sheet[24:184:5, 216:376:5], image)


@pytest.mark.parametrize("shape", [(40, 300), (300, 40)])
def test_long_images_are_fitted_and_centred(make_images: MakeImages, shape: tuple[int, int]) -> None:
    image = make_images(1, *shape)[0]
    sheet = np.asarray(contact_sheet(image, ["contrast"]))
    corner, centre = sheet[24, 216], sheet[24 + 80, 216 + 80]
    assert corner.tolist() == [250, 250, 248]  # background
    assert centre.tolist() != [250, 250, 248]
