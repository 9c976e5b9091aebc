"""Photographs of any size, mode and orientation, and files that cannot be read."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import ttc
from ttc.deploy.photos import PhotoImages, Preprocessing, UnreadableImageError, read_photo


def test_preprocessing_resizes_the_shorter_side_and_crops_the_centre() -> None:
    ramp = Image.fromarray(np.tile(np.arange(200, dtype=np.uint8), (100, 1)))
    assert Preprocessing().apply(ramp) is ramp
    whole = np.asarray(Preprocessing(100).apply(ramp))
    np.testing.assert_array_equal(whole[0], np.arange(50, 150))
    half = np.asarray(Preprocessing(50, crop=0.5).apply(ramp))
    np.testing.assert_array_equal(half[0], np.arange(75, 125))
    small = Image.new("L", (4, 4))
    assert Preprocessing(4, 0.5).apply(small) is small
    with pytest.raises(ttc.TTCError, match="unknown interpolation 'bicubik'"):
        Preprocessing(4, 0.5, "bicubik").apply(ramp)


def test_every_mode_is_rgb_and_upright(tmp_path: Path) -> None:
    deep = np.full((2, 3), 200 << 8, np.uint16)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    assert read_photo(tmp_path / "deep.png", Preprocessing()).tolist() == [[[200] * 3] * 3] * 2
    for mode in ("1", "L", "LA", "P", "RGBA", "CMYK"):
        name = tmp_path / f"{mode}.tiff"
        Image.new(mode, (3, 2)).save(name)
        assert read_photo(name, Preprocessing()).shape == (2, 3, 3)
    sideways = Image.new("RGB", (3, 2))
    exif = sideways.getexif()
    exif[0x0112] = 6  # as a phone held upright writes it
    sideways.save(tmp_path / "phone.jpg", exif=exif)
    assert read_photo(tmp_path / "phone.jpg", Preprocessing()).shape == (3, 2, 3)


def test_files_that_cannot_be_decoded_say_why(tmp_path: Path) -> None:
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)).save(tmp_path / "whole.jpg")
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "whole.jpg").read_bytes()[:900])
    (tmp_path / "text.jpg").write_text("not an image")
    (tmp_path / "empty.png").touch()
    for name, reason in (("cut", "truncated"), ("text", "not an image, or damaged"), ("empty", "not an image")):
        (path,) = tmp_path.glob(f"{name}.*")
        with pytest.raises(UnreadableImageError, match=reason) as found:
            read_photo(path, Preprocessing())
        assert reason in found.value.reason
    with pytest.raises(UnreadableImageError, match="No such file"):
        read_photo(tmp_path / "gone.png", Preprocessing())


def test_sizes_are_read_from_headers(tmp_path: Path) -> None:
    for i in range(6):
        Image.new("RGB", (10 + i, 20)).save(tmp_path / f"{i}.png")
    (tmp_path / "6.png").touch()
    images = PhotoImages("photos", tmp_path, sorted(tmp_path.iterdir()))
    assert images.sizes(most=None) == [(10 + i, 20) for i in range(6)]
    assert images.sizes(most=3) == [(10, 20), (12, 20), (14, 20)]
    assert images.labels.tolist() == [0] * 7
    assert images.prepared(Preprocessing(5)).pixels([0, 3]).shape == (2, 5, 5, 3)
    with pytest.raises(ttc.TTCError, match="no checksum"):
        _ = images.checksum
