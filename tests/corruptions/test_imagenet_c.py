"""ImageNet-C: the layout, every kind of file a folder may hold, and resuming after a stop."""

import errno
import hashlib
import io
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ttc.corruptions import corrupt
from ttc.corruptions.imagenet_c import generate_imagenet_c, list_images, read_image
from ttc.errors import TTCError
from ttc.files import checksum


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with a JPEG, a PNG, a grey, an RGBA and a 16-bit image, a broken one and a text."""
    folder = tmp_path / "val"
    (folder / "n01").mkdir(parents=True)
    (folder / "n02").mkdir()
    rng = np.random.default_rng(0)
    noise = np.kron(rng.integers(0, 256, (5, 7, 3), dtype=np.uint8), np.ones((10, 10, 1), np.uint8))  # 50 x 70
    Image.fromarray(noise).save(folder / "n01" / "a.JPEG", quality=95)
    Image.fromarray(noise).save(folder / "n02" / "b.png")
    Image.fromarray(noise[:, :, 0]).save(folder / "n02" / "grey.png")
    Image.fromarray(np.dstack([noise, noise[:, :, :1]])).save(folder / "n02" / "rgba.png")
    Image.fromarray(noise[:, :, 0].astype(np.uint16) * 257).save(folder / "n02" / "deep.png")
    whole = (folder / "n01" / "a.JPEG").read_bytes()
    (folder / "n01" / "broken.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "n01" / "fake.png").write_text("not an image")
    (folder / "n01" / "notes.txt").write_text("not listed")
    return folder


def test_layout(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    kinds: Counter[str] = Counter()
    manifest = generate_imagenet_c(
        source, out, ["contrast", "fog"], [1, 5], size=48, seed=2, workers=2, converted=kinds.update
    )
    files = {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()}
    names = {"n01/a.JPEG", "n02/b.JPEG", "n02/grey.JPEG", "n02/rgba.JPEG", "n02/deep.JPEG"}
    assert files == {f"{c}/{s}/{n}" for c in ("contrast", "fog") for s in (1, 5) for n in names} | {"corruptions.json"}
    assert kinds == {"grey": 1, "RGBA": 1, "16-bit": 1}
    assert set(manifest.unreadable) == {"n01/broken.jpg", "n01/fake.png"}
    assert "truncated" in manifest.unreadable["n01/broken.jpg"]
    image = next(p for p in list_images(source) if p.target.name == "b.JPEG")
    pixels, _ = read_image(source / "n02" / "b.png", 48)
    buffer = io.BytesIO()
    corrupted = corrupt(pixels[None], "fog", 5, seed=2, indices=[image.index])[0]
    Image.fromarray(corrupted).save(buffer, "JPEG", quality=85, optimize=True)
    assert (out / "fog/5/n02/b.JPEG").read_bytes() == buffer.getvalue()


def test_checksum_is_that_of_the_listing(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    generate_imagenet_c(source, out, ["contrast"], [3], size=32)
    folder = out / "contrast" / "3"
    lines = [f"{checksum(p)}  {p.relative_to(folder)}\n" for p in sorted(folder.rglob("*.JPEG"))]
    expected = hashlib.sha256("".join(lines).encode()).hexdigest()
    assert json.loads((out / "corruptions.json").read_text())["checksums"] == {"contrast/3": expected}


def test_resumes_after_a_stop_and_with_new_images(source: Path, tmp_path: Path) -> None:
    out, whole = tmp_path / "out", tmp_path / "whole"
    generate_imagenet_c(source, whole, ["fog", "frost"], [5], size=32)

    def stop(made: int, found: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate_imagenet_c(source, out, ["fog", "frost"], [5], size=32, progress=stop)
    written = {p: p.stat().st_mtime_ns for p in out.rglob("*.JPEG")}
    assert written
    half = out / "fog" / "5" / "n01" / ".a.JPEG.xyz.part.JPEG"
    half.write_bytes(b"half")  # what a killed run leaves
    generate_imagenet_c(source, out, ["fog", "frost"], [5], size=32)
    assert not half.exists()
    assert all(p.stat().st_mtime_ns == before for p, before in written.items())
    ours = {p.relative_to(out): checksum(p) for p in out.rglob("*.JPEG")}
    assert ours == {p.relative_to(whole): checksum(p) for p in whole.rglob("*.JPEG")}
    Image.new("RGB", (60, 60), (9, 90, 200)).save(source / "aaa.png")  # sorts first; no other image changes
    generate_imagenet_c(source, out, ["fog", "frost"], [5], size=32)
    assert (out / "fog" / "5" / "aaa.JPEG").exists()
    assert all(checksum(out / path) == before for path, before in ours.items())


def test_resize_and_crop_are_those_of_imagenet(source: Path) -> None:
    with Image.open(source / "n02" / "b.png") as image:
        resized = image.resize((round(70 * 256 / 50), 256), Image.Resampling.BILINEAR)
    left = (resized.width - 224) // 2
    expected = np.asarray(resized)[16:240, left : left + 224]
    np.testing.assert_array_equal(read_image(source / "n02" / "b.png", 224)[0], expected)


def test_kinds_are_read_as_rgb(source: Path) -> None:
    plain, _ = read_image(source / "n02" / "b.png", 0)
    assert plain.shape == (50, 70, 3)
    np.testing.assert_array_equal(read_image(source / "n02" / "rgba.png", 0)[0], plain)
    for name in ("grey", "deep"):
        pixels, _ = read_image(source / "n02" / f"{name}.png", 0)
        np.testing.assert_array_equal(pixels, np.repeat(plain[:, :, :1], 3, axis=2))


def test_what_cannot_be_eight_bits_is_rejected(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((40, 40), np.float32)).save(tmp_path / "f.tiff")
    with pytest.raises(ValueError, match="floating-point images are not supported"):
        read_image(tmp_path / "f.tiff", 0)
    Image.fromarray(np.full((40, 40), 1 << 20, np.int32)).save(tmp_path / "i.tiff")
    with pytest.raises(ValueError, match="beyond 16 bits"):
        read_image(tmp_path / "i.tiff", 0)
    Image.new("RGB", (10, 40)).save(tmp_path / "small.png")
    with pytest.raises(ValueError, match="10x40 pixels are below the minimum of 16x16"):
        read_image(tmp_path / "small.png", 0)


def test_whole_images_of_different_sizes(source: Path, tmp_path: Path) -> None:
    Image.new("RGB", (33, 20), (9, 90, 200)).save(source / "n01" / "small.png")
    generate_imagenet_c(source, tmp_path / "out", ["fog"], [5], size=0)
    with Image.open(tmp_path / "out" / "fog" / "5" / "n01" / "small.JPEG") as image:
        assert image.size == (33, 20)


def test_bad_folders_are_rejected(source: Path, tmp_path: Path) -> None:
    with pytest.raises(TTCError, match="is inside the source"):
        generate_imagenet_c(source, source / "n03", ["fog"], [5])
    (tmp_path / "empty").mkdir()
    with pytest.raises(TTCError, match="contains no images"):
        generate_imagenet_c(tmp_path / "empty", tmp_path / "out", ["fog"], [5])
    with pytest.raises(TTCError, match="is not a folder"):
        generate_imagenet_c(source / "n02" / "b.png", tmp_path / "out", ["fog"], [5])
    Image.new("RGB", (40, 40)).save(source / "n02" / "b.bmp")
    with pytest.raises(TTCError, match=r"n02/b.bmp and n02/b.png in .* would both become n02/b.JPEG; rename"):
        generate_imagenet_c(source, tmp_path / "out", ["fog"], [5])
    with pytest.raises(TTCError, match=r"frost folder .* missing: frost1.png"):
        generate_imagenet_c(source / "n01", tmp_path / "out", ["fog"], [5], frost_dir=tmp_path)


def test_a_full_disk_is_explained_and_the_run_resumes_later(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("ttc.corruptions.imagenet_c.atomic", full)
        with pytest.raises(TTCError, match=r"no space left for .* run the same command again to resume"):
            generate_imagenet_c(source, tmp_path / "out", ["fog"], [5], size=32)
    generate_imagenet_c(source, tmp_path / "out", ["fog"], [5], size=32)
    assert len(list((tmp_path / "out").rglob("*.JPEG"))) == 5


def test_an_unwritable_folder_is_explained(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TTCError, match=r"cannot write to .*out \(.*\); choose another folder"):
        generate_imagenet_c(source, tmp_path / "file" / "out", ["fog"], [5], size=32)
