"""The distributions of the noises."""

import math

import numpy as np
import pytest
from scipy import stats

from ttc.corruptions import SEVERITIES, TABLES, corrupt
from ttc.corruptions.severity_tables import TableName

GREY = {
    ("gaussian_noise", "cifar"): (0.040, 0.060, 0.080, 0.090, 0.100),
    ("gaussian_noise", "imagenet"): (0.080, 0.120, 0.179, 0.247, 0.317),
    ("shot_noise", "cifar"): (0.032, 0.045, 0.071, 0.082, 0.100),
    ("shot_noise", "imagenet"): (0.091, 0.141, 0.201, 0.288, 0.345),
}


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
def test_impulse_noise_fraction(table: TableName) -> None:
    grey = np.full((40, 32, 32, 3), 128, dtype=np.uint8)
    for severity, (amount,) in zip(SEVERITIES, TABLES[table].parameters["impulse_noise"], strict=True):
        noisy = corrupt(grey, "impulse_noise", severity, table=table)
        assert set(np.unique(noisy)) == {0, 128, 255}
        error = math.sqrt(amount * (1 - amount) / noisy.size)
        assert (noisy != 128).mean() == pytest.approx(amount, abs=3 * error)
        assert (noisy == 255).sum() / (noisy != 128).sum() == pytest.approx(0.5, abs=0.05)
        touched = (noisy != 128).any(3).mean()
        assert touched == pytest.approx(1 - (1 - amount) ** 3, rel=0.05)  # each channel by itself
