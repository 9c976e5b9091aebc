"""Image files of any size, mode and orientation, and files that cannot be read."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ttc.data.decoding import Fitting, UnreadableImageError, read_rgb


def test_the_shorter_side_is_resized_and_the_centre_cropped(tmp_path: Path) -> None:
    Image.fromarray(np.tile(np.arange(200, dtype=np.uint8), (100, 1))).save(tmp_path / "ramp.png")

    def row(fitting: Fitting | None) -> list[int]:
        return [int(value) for value in read_rgb(tmp_path / "ramp.png", fitting)[0, :, 0]]

    assert row(None) == list(range(200))
    assert row(Fitting(100, 100)) == list(range(50, 150))
    assert row(Fitting(50, 100)) == list(range(75, 125))
    Image.fromarray(np.arange(16, dtype=np.uint8).reshape(4, 4)).save(tmp_path / "small.png")
    assert read_rgb(tmp_path / "small.png", Fitting(4, 8))[..., 0].tolist() == np.arange(16).reshape(4, 4).tolist()


def test_every_mode_is_rgb_and_upright(tmp_path: Path) -> None:
    deep = np.full((2, 3), 200 << 8, np.uint16)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    assert read_rgb(tmp_path / "deep.png").tolist() == [[[200] * 3] * 3] * 2
    for mode in ("1", "L", "LA", "P", "RGBA", "CMYK"):
        name = tmp_path / f"{mode}.tiff"
        Image.new(mode, (3, 2)).save(name)
        assert read_rgb(name).shape == (2, 3, 3)
    sideways = Image.new("RGB", (3, 2))
    exif = sideways.getexif()
    exif[0x0112] = 6  # as a phone held upright writes it
    sideways.save(tmp_path / "phone.jpg", exif=exif)
    assert read_rgb(tmp_path / "phone.jpg").shape == (3, 2, 3)


def test_files_that_cannot_be_decoded_say_why(tmp_path: Path) -> None:
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)).save(tmp_path / "whole.jpg")
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "whole.jpg").read_bytes()[:900])
    (tmp_path / "text.jpg").write_text("not an image")
    (tmp_path / "empty.png").touch()
    for name, reason in (("cut", "truncated"), ("text", "not an image file"), ("empty", "not an image")):
        (path,) = tmp_path.glob(f"{name}.*")
        with pytest.raises(UnreadableImageError, match=reason) as found:
            read_rgb(path)
        assert reason in found.value.reason
    with pytest.raises(UnreadableImageError, match="No such file"):
        read_rgb(tmp_path / "gone.png")
