import errno
import os
from pathlib import Path

import numpy as np
import pytest

from ttc.data import ArrayImages, corrupt_images
from ttc.data.images import Indices, Pixels
from ttc.errors import TTCError

corruptions = pytest.importorskip("ttc.corruptions")


def images(count: int = 5) -> ArrayImages:
    pixels = np.random.default_rng(3).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    return ArrayImages("five", pixels, np.arange(count) % 3, 3)


def test_pixels_equal_the_generator_and_do_not_depend_on_the_batch() -> None:
    clean = images()
    made = corrupt_images(clean, "gaussian_noise", 5, seed=2)
    whole = made.pixels(range(5))
    expected = corruptions.corrupt(clean.array, "gaussian_noise", 5, seed=2, indices=np.arange(5))
    np.testing.assert_array_equal(whole, expected)
    np.testing.assert_array_equal(made.pixels([4, 1]), whole[[4, 1]])
    assert not np.array_equal(whole, clean.array)
    assert (made.name, made.num_classes, len(made)) == ("five gaussian_noise 5", 3, 5)
    np.testing.assert_array_equal(made.labels, clean.labels)


def test_checksum_depends_on_the_settings() -> None:
    clean = images()
    checksums = {
        corrupt_images(clean, name, s, seed).checksum for name in ("fog", "snow") for s in (1, 5) for seed in (0, 1)
    }
    assert len(checksums) == 8


def test_the_cache_contains_the_same_images_and_is_reused(tmp_path: Path) -> None:
    clean, reported = images(), list[int]()
    fly = corrupt_images(clean, "gaussian_noise", 3)
    made = corrupt_images(clean, "gaussian_noise", 3, cache=tmp_path / "cache", advance=reported.append)
    assert sum(reported) == 5
    (file,) = (tmp_path / "cache").iterdir()
    np.testing.assert_array_equal(np.load(file), fly.pixels(range(5)))
    np.testing.assert_array_equal(made.pixels([3, 0]), fly.pixels([3, 0]))
    assert made.checksum == fly.checksum
    again = corrupt_images(clean, "gaussian_noise", 3, cache=tmp_path / "cache", advance=reported.append)
    assert sum(reported) == 5
    np.testing.assert_array_equal(again.pixels(range(5)), made.pixels(range(5)))
    corrupt_images(clean, "gaussian_noise", 3, seed=1, cache=tmp_path / "cache")
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_an_interrupted_fill_leaves_nothing(tmp_path: Path) -> None:
    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        corrupt_images(images(), "gaussian_noise", 3, cache=tmp_path, advance=stop)
    assert list(tmp_path.iterdir()) == []


def test_a_cache_without_write_permission(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")  # root may write anywhere, so a file stands where a directory is needed
    with pytest.raises(TTCError, match=r"cannot write to .*file.*--data or TTC_DATA"):
        corrupt_images(images(), "gaussian_noise", 3, cache=blocked)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="needs a user who is rejected")
def test_a_read_only_cache(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(TTCError, match=r"cannot write to .*Permission denied"):
        corrupt_images(images(), "gaussian_noise", 3, cache=tmp_path / "cache")


def test_a_wrong_name_is_rejected_at_once() -> None:
    with pytest.raises(TTCError, match="mist"):
        corrupt_images(images(), "mist", 3)


def test_a_full_disk_is_one_sentence_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(TTCError, match="No space left on device"):
        corrupt_images(images(), "fog", 5, cache=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_cache_is_filled_a_few_images_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ttc.data.corrupted_images.CHUNK", 2)
    requested = list[int]()

    class Recording(ArrayImages):
        def pixels(self, indices: Indices) -> Pixels:
            requested.append(len(indices))
            return super().pixels(indices)

    clean = images(7)
    made = corrupt_images(Recording("seven", clean.array, clean.labels, 3), "contrast", 3, cache=tmp_path)
    assert max(requested) == 2
    before = len(requested)
    assert isinstance(made.pixels([6, 0]), np.ndarray)
    assert len(requested) == before  # read from the memory-mapped file
