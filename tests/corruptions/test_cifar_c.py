"""CIFAR-C: the layout, resuming after a stop, and a full disk."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ttc.corruptions import cifar_c, corrupt
from ttc.corruptions.cifar_c import generate_cifar_c, open_cifar_file
from ttc.errors import TTCError
from ttc.files import checksum

RECORDS = 1100  # more than two pieces of work, the last one short


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    rng = np.random.default_rng(0)
    records = rng.integers(0, 256, (RECORDS, 3073), dtype=np.uint8)
    records[:, 0] = np.arange(RECORDS) % 10
    records.tofile(folder / "test_batch.bin")
    return folder


def images_of(source: Path) -> NDArray[np.uint8]:
    raw = np.fromfile(source / "test_batch.bin", np.uint8).reshape(-1, 3073)
    return np.stack([raw[:, 1 + c * 1024 : 1 + (c + 1) * 1024].reshape(-1, 32, 32) for c in range(3)], axis=-1)


def test_layout(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "CIFAR-10-C"
    reported = []
    generate_cifar_c(
        source, out, ["fog", "contrast"], [1, 5], seed=3, workers=2, progress=lambda *a: reported.append(a)
    )
    images = images_of(source)
    for name in ("fog", "contrast"):
        array = np.load(out / f"{name}.npy", mmap_mode="r")
        assert array.shape == (2 * RECORDS, 32, 32, 3)
        assert array.dtype == np.uint8
        np.testing.assert_array_equal(array[:RECORDS], corrupt(images, name, 1, seed=3))
        np.testing.assert_array_equal(array[RECORDS:], corrupt(images, name, 5, seed=3))
    np.testing.assert_array_equal(np.load(out / "labels.npy"), np.tile(np.arange(RECORDS) % 10, 2))
    assert sum(made for made, _, _ in reported) == reported[0][2] == 4 * RECORDS
    manifest = json.loads((out / "corruptions.json").read_text())
    assert manifest["settings"]["seed"] == 3
    assert manifest["settings"]["table"] == "cifar"
    assert manifest["settings"]["frost"] == "procedural"
    assert manifest["checksums"] == {p.name: checksum(p) for p in out.glob("*.npy")}
    assert sorted(p.name for p in out.iterdir()) == ["contrast.npy", "corruptions.json", "fog.npy", "labels.npy"]


def test_a_stopped_run_resumes_and_ends_with_the_same_bytes(source: Path, tmp_path: Path) -> None:
    whole, out = tmp_path / "whole", tmp_path / "stopped"
    generate_cifar_c(source, whole, ["gaussian_noise", "fog"], [2, 4])
    seen = 0

    def stop_midway(made: int, found: int, total: int) -> None:
        nonlocal seen
        seen += made
        if seen > 3 * RECORDS:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate_cifar_c(source, out, ["gaussian_noise", "fog"], [2, 4], progress=stop_midway)
    assert (out / "gaussian_noise.npy").exists()
    assert not (out / "fog.npy").exists()  # a partial file never looks complete
    counts = np.zeros(2, int)

    def count(made: int, found: int, total: int) -> None:
        counts[:] += (made, found)

    generate_cifar_c(source, out, ["gaussian_noise", "fog"], [2, 4], progress=count)
    assert counts.sum() == 4 * RECORDS
    assert counts[1] >= 3 * RECORDS  # found, not made again
    for name in ("gaussian_noise.npy", "fog.npy", "labels.npy"):
        assert checksum(out / name) == checksum(whole / name)
    assert not list(out.glob(".*"))


def test_more_corruptions_can_be_added(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    generate_cifar_c(source, out, ["contrast"], [5])
    before = (out / "contrast.npy").stat().st_mtime_ns
    manifest = generate_cifar_c(source, out, ["contrast", "brightness"], [5])
    assert set(manifest.checksums) == {"labels.npy", "contrast.npy", "brightness.npy"}
    assert (out / "contrast.npy").stat().st_mtime_ns == before


def test_other_settings_are_rejected(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    generate_cifar_c(source, out, ["contrast"], [5])
    with pytest.raises(TTCError, match=r"started with seed 0, got 1: use the same settings to resume"):
        generate_cifar_c(source, out, ["contrast"], [5], seed=1)
    with pytest.raises(TTCError, match=r"started with severities \[5\], got \[4\]"):
        generate_cifar_c(source, out, ["contrast"], [4])


def test_a_strange_folder_is_left_alone(source: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "fog.npy").write_bytes(b"precious")
    with pytest.raises(TTCError, match="contains files that `ttc corrupt` did not write"):
        generate_cifar_c(source, tmp_path / "mine", ["fog"], [5])
    assert (tmp_path / "mine" / "fog.npy").read_bytes() == b"precious"
    (tmp_path / "mine" / "corruptions.json").write_text("[]")
    with pytest.raises(TTCError, match="is not a manifest"):
        generate_cifar_c(source, tmp_path / "mine", ["fog"], [5])


def test_inside_the_source_is_rejected(source: Path) -> None:
    with pytest.raises(TTCError, match="is inside the source"):
        generate_cifar_c(source, source / "out", ["fog"], [5])
    with pytest.raises(TTCError, match="does not exist"):
        generate_cifar_c(source / "nothing", source.parent / "out", ["fog"], [5])


def test_a_full_disk_is_explained_and_loses_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    generate_cifar_c(source, out, ["contrast"], [5])

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        with pytest.raises(TTCError, match=r"no space left .* run the same command again to resume"):
            generate_cifar_c(source, out, ["contrast", "fog"], [5])
    assert sorted(p.name for p in out.iterdir()) == ["contrast.npy", "corruptions.json", "labels.npy"]
    generate_cifar_c(source, out, ["contrast", "fog"], [5])
    assert (out / "fog.npy").exists()


def test_cifar_100_and_broken_files(tmp_path: Path) -> None:
    records = np.zeros((3, 3074), np.uint8)
    records[:, 0], records[:, 1] = 7, (4, 5, 99)
    records.tofile(tmp_path / "test.bin")
    assert open_cifar_file(tmp_path).labels().tolist() == [4, 5, 99]
    assert open_cifar_file(tmp_path).images(1, 3).shape == (2, 32, 32, 3)
    (tmp_path / "other.bin").write_bytes(bytes(3073 * 2))
    assert len(open_cifar_file(tmp_path / "other.bin").records) == 2
    (tmp_path / "cut.bin").write_bytes(bytes(4000))
    with pytest.raises(TTCError, match="4000 bytes is not a multiple of 3073 or 3074; download it again"):
        open_cifar_file(tmp_path / "cut.bin")
    (tmp_path / "empty").mkdir()
    with pytest.raises(TTCError, match=r"contains neither test_batch\.bin nor test\.bin"):
        open_cifar_file(tmp_path / "empty")


def test_a_torn_journal_line_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("0\n500\n10")
    assert cifar_c._journal_starts(tmp_path / "journal") == {0, 500}
