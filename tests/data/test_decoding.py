"""Image files of any size, mode and orientation, and files that cannot be read."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ttc.data.decoding import Fitting, UnreadableImageError, read_rgb
from ttc.errors import TTCError


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


def gradient(size: tuple[int, int] = (8, 8)) -> Image.Image:
    wide, high = size
    values = np.linspace(0, 255, wide * high).reshape(high, wide).astype(np.uint8)
    return Image.fromarray(values)


def close(pixels: np.ndarray, image: Image.Image, tolerance: int) -> bool:
    """Whether the pixels are those of an image, up to the loss of JPEG."""
    difference = pixels.astype(int) - np.asarray(image.convert("RGB")).astype(int)
    return bool(np.abs(difference).max() <= tolerance)


@pytest.mark.parametrize(
    ("name", "mode", "tolerance"),
    [
        ("grey.jpg", "L", 8),
        ("grey.png", "L", 0),
        ("bits.png", "1", 0),
        ("palette.png", "P", 0),
        ("alpha.png", "RGBA", 0),
        ("grey-alpha.png", "LA", 0),
        ("cmyk.jpg", "CMYK", 8),
        ("cmyk.tif", "CMYK", 0),
        ("ycbcr.jpg", "YCbCr", 8),
    ],
)
def test_kinds_of_images(tmp_path: Path, name: str, mode: str, tolerance: int) -> None:
    image = gradient((32, 32)).convert(mode)
    image.save(tmp_path / name, quality=95)
    pixels = read_rgb(tmp_path / name)
    assert pixels.shape == (32, 32, 3)
    assert pixels.dtype == np.uint8
    assert close(pixels, image, tolerance)


def test_sixteen_bits_are_scaled_not_clipped(tmp_path: Path) -> None:
    values = (np.arange(64, dtype=np.uint16) * 1024).reshape(8, 8)
    for name in ("deep.png", "deep.tif"):
        Image.fromarray(values).save(tmp_path / name)
        np.testing.assert_array_equal(read_rgb(tmp_path / name)[:, :, 0], values >> 8)


def test_a_transparent_palette_keeps_its_colours(tmp_path: Path) -> None:
    image = Image.new("P", (4, 4), 1)
    image.putpalette([0, 0, 0, 10, 20, 30])
    image.save(tmp_path / "p.png", transparency=bytes([255, 0]))
    assert read_rgb(tmp_path / "p.png")[0, 0].tolist() == [10, 20, 30]


@pytest.mark.parametrize("size", [(100, 40), (40, 100), (9, 300), (224, 224), (16, 16), (17, 15)])
def test_images_of_many_sizes_fit(tmp_path: Path, size: tuple[int, int]) -> None:
    gradient(size).save(tmp_path / "a.png")
    assert read_rgb(tmp_path / "a.png", Fitting.to(16)).shape == (16, 16, 3)


def test_fitting_resizes_the_shorter_side_then_crops_the_centre(tmp_path: Path) -> None:
    image = gradient((64, 32)).convert("RGB")
    image.save(tmp_path / "a.png")
    resized = image.resize((40, 20), Image.Resampling.BICUBIC).crop((12, 2, 28, 18))
    np.testing.assert_array_equal(read_rgb(tmp_path / "a.png", Fitting(16, 20, "bicubic")), np.asarray(resized))
    bilinear = read_rgb(tmp_path / "a.png", Fitting(16, 20))
    assert not np.array_equal(bilinear, np.asarray(resized))


def test_the_usual_fitting() -> None:
    assert (Fitting.to(224).resize, Fitting.to(32).resize) == (256, 32)
    with pytest.raises(TTCError, match="at least 1 pixel, got 0"):
        Fitting.to(0)


def test_unreadable_files_are_named_in_one_sentence(tmp_path: Path) -> None:
    Image.fromarray(np.ones((4, 4), np.float32)).save(tmp_path / "float.tif")
    (tmp_path / "text.jpg").write_text("no image")
    gradient((64, 64)).save(tmp_path / "whole.jpg")
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "whole.jpg").read_bytes()[:400])
    for name, reason in (
        ("float.tif", "floating-point values"),
        ("text.jpg", "not an image file"),
        ("cut.jpg", "truncated"),
        ("absent.jpg", "No such file"),
    ):
        with pytest.raises(TTCError, match=rf"cannot read the image .*{name} \(.*{reason}.*\): remove or replace it"):
            read_rgb(tmp_path / name)
