"""The shared filters against SciPy."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from ttc.corruptions.filters import correlate, gaussian_filter, motion_filter


def test_motion_leaves_a_trail_on_one_side() -> None:
    image = torch.zeros(1, 1, 9, 40, dtype=torch.uint8)
    image[0, 0, 4, 30] = 255
    trail = motion_filter(image, 9, 2.5, torch.tensor([0.0]))[0, 0]
    assert trail[4, 31:].sum() == 0
    assert trail[4, 30] > trail[4, 29] > trail[4, 27] > 0
    assert trail.sum() == trail[4].sum()


@pytest.mark.parametrize("sigma", [0.05, 0.4, 1.0, 6.0])
def test_gaussian_filter_is_that_of_scipy(sigma: float) -> None:
    x = np.random.default_rng(0).random((2, 3, 20, 30))
    expected = ndimage.gaussian_filter(x, (0, 0, sigma, sigma), mode="nearest", truncate=4.0)
    np.testing.assert_allclose(gaussian_filter(torch.from_numpy(x), sigma).numpy(), expected, atol=1e-14)


def test_correlate_is_that_of_scipy() -> None:
    rng = np.random.default_rng(1)
    x, kernel = rng.random((2, 3, 20, 30)), rng.random((5, 3))
    expected = ndimage.correlate(x, kernel[None, None], mode="mirror")
    np.testing.assert_allclose(correlate(torch.from_numpy(x), torch.from_numpy(kernel)).numpy(), expected, atol=1e-13)
