"""A disk that is really full: a small file system in memory, on which every writer ends in one sentence."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import ttc
from tests.bench.conftest import protocol
from tests.bench.test_store import HERE, result
from ttc.bench import Store
from ttc.data import ArrayImages
from ttc.data.corrupted_images import corrupt_images
from ttc.errors import TTCError
from ttc.models.card import save_weights

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="mounting a small file system needs root on Linux"
)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 512 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", folder], check=False).returncode:
        pytest.skip("this container may not mount file systems")
    yield folder
    subprocess.run(["umount", folder], check=True)


def fill(disk: Path, leave: int) -> None:
    """Leave so many bytes free."""
    usage = os.statvfs(disk)
    (disk / "filler").write_bytes(bytes(usage.f_bavail * usage.f_frsize - leave))


def test_the_image_cache(disk: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (400, 32, 32, 3), dtype=np.uint8)
    images = ArrayImages("mine", pixels, np.zeros(400, np.int64), num_classes=1)
    with pytest.raises(TTCError, match=r"cannot write to .*No space left on device"):
        corrupt_images(images, "fog", 5, cache=disk / "cache")
    assert list((disk / "cache").iterdir()) == []


def test_corrupt(disk: Path, tmp_path: Path) -> None:
    records = np.random.default_rng(0).integers(0, 256, (400, 3073), dtype=np.uint8)
    records[:, 0] %= 10
    cifar = tmp_path / "cifar"
    cifar.mkdir()
    (cifar / "test_batch.bin").write_bytes(records.tobytes())
    words = [sys.executable, "-m", "ttc", "corrupt", str(cifar), str(disk / "out"), "--corruptions", "fog"]
    source = str(Path(ttc.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no space left for" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (disk / "out" / "fog.npy").exists()


def record_many(store: Store) -> None:
    for seed in range(1, 500):
        store.finish(protocol(seed=seed), result(), HERE)


def test_the_store_keeps_what_it_has_and_continues(disk: Path) -> None:
    with Store(disk / "a.sqlite") as store:
        store.finish(protocol(seed=0), result(), HERE)
        fill(disk, leave=0)
        with pytest.raises(TTCError, match="the disk is full; free some space and run the same command again"):
            record_many(store)
        before = store.finished()
        assert protocol(seed=0).hash in before
        (disk / "filler").unlink()
        store.finish(protocol(seed=1000), result(), HERE)
        assert store.finished() == before | {protocol(seed=1000).hash}


def test_an_adaptation_that_does_not_fit_leaves_the_old_file(disk: Path) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, 3))
    adapter = ttc.adapt(model, "tent")
    adapter.save(disk / "a.safetensors")
    before = (disk / "a.safetensors").read_bytes()
    adapter(torch.rand(8, 3, 2, 2))
    fill(disk, leave=0)
    with pytest.raises(TTCError, match="No space left on device"):
        adapter.save(disk / "a.safetensors")
    assert (disk / "a.safetensors").read_bytes() == before


def test_trained_weights_that_do_not_fit(disk: Path) -> None:
    fill(disk, leave=0)
    with pytest.raises(TTCError, match=r"cannot write .*No space left on device"):
        save_weights(nn.Linear(300, 300), disk / "w.safetensors", {})
    assert [path.name for path in disk.iterdir()] == ["filler"]
