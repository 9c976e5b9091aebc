"""The procedural textures have the statistics measured on the originals."""

from pathlib import Path

import numpy as np
import pytest

from ttc.corruptions import corrupt
from ttc.corruptions.frost_textures import TEXTURE_TARGETS, fit_textures, procedural_textures, spectral_slope
from ttc.errors import TTCError


@pytest.mark.parametrize("number", range(len(TEXTURE_TARGETS)))
def test_procedural_textures_have_the_measured_statistics(number: int) -> None:
    target, texture = TEXTURE_TARGETS[number], procedural_textures()[number].astype(float)
    assert texture.shape == (target.height, target.width, 3)
    np.testing.assert_allclose(texture.mean((0, 1)), target.mean, rtol=0.1)
    np.testing.assert_allclose(texture.std((0, 1)), target.deviation, rtol=0.1)
    luminance = texture @ [0.299, 0.587, 0.114]
    np.testing.assert_allclose(np.percentile(luminance, (5, 50, 95)), target.luminance, rtol=0.1)
    assert spectral_slope(luminance) == pytest.approx(target.slope, abs=0.3)
    across, down = np.diff(luminance, axis=1).std(), np.diff(luminance, axis=0).std()
    assert abs(across - down) / (across + down) < 0.1  # nearly isotropic


@pytest.mark.parametrize(("number", "measured"), list(enumerate((14.4, 19.6, 29.6, 39.6))))
def test_shrunk_textures_are_as_rough_as_the_originals(number: int, measured: float) -> None:
    """At a fifth of the size roughness decides how hard frost is; the numbers were measured on the originals."""
    luminance = procedural_textures()[number][2::5, 2::5] @ [0.299, 0.587, 0.114]
    assert np.diff(luminance, axis=1).std() == pytest.approx(measured, rel=0.15)


def test_spectral_slope_of_known_fields() -> None:
    rng = np.random.default_rng(0)
    white = rng.standard_normal((256, 300))
    assert spectral_slope(white) == pytest.approx(0, abs=0.15)
    walk = np.fft.rfft2(white) / np.maximum(np.hypot(np.fft.fftfreq(256)[:, None], np.fft.rfftfreq(300)), 1 / 300)
    assert spectral_slope(np.fft.irfft2(walk, s=white.shape)) == pytest.approx(-2, abs=0.15)


def test_textures_grow_with_long_images() -> None:
    for texture in fit_textures(None, 1.0, 224, 1000):
        assert texture.shape[1] > 224
        assert texture.shape[2] > 1000


def test_cifar_takes_every_fifth_pixel() -> None:
    shrunk = fit_textures(None, 0.2, 32, 32)[0].permute(1, 2, 0).numpy()
    np.testing.assert_array_equal(shrunk, procedural_textures()[0][2::5, 2::5])


def test_a_missing_image_is_named(tmp_path: Path) -> None:
    images = np.zeros((1, 32, 32, 3), dtype=np.uint8)
    with pytest.raises(TTCError, match=r"frost1\.png cannot be read \(No such file or directory\)"):
        corrupt(images, "frost", frost_dir=tmp_path)
