import csv
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import ttc
from ttc.core import Adapter
from ttc.data import ArrayImages
from ttc.deploy import AdaptationJob, InputImages, JobSettings, read_input_images
from ttc.deploy.shards import ShardedJob, run_shard, split_images
from ttc.errors import TTCError

SETTINGS = JobSettings("small", "pets", method="norm", batch_size=4, guard=False)


@pytest.fixture
def pets(tmp_path: Path) -> InputImages:
    """Twenty images of two classes."""
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for i in range(10):
            Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(tmp_path / "pets" / name / f"{i}.png")
    return read_input_images(tmp_path / "pets")


def adapter() -> Adapter:
    torch.manual_seed(0)
    return ttc.adapt(nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(192, 2)), "norm")


def test_every_image_is_in_one_shard(pets: InputImages) -> None:
    for shuffle in (False, True):
        shards = split_images(pets, 3, shuffle=shuffle, seed=0)
        assert [len(shard.images) for shard in shards] == [7, 7, 6]
        assert sorted(name for shard in shards for name in shard.names) == list(pets.names)
        for shard in shards:
            whole = [list(pets.names).index(name) for name in shard.names]
            np.testing.assert_array_equal(shard.images.labels, pets.images.labels[whole])
            np.testing.assert_array_equal(shard.images.pixels([2]), pets.images.pixels([whole[2]]))
    assert split_images(pets, 3, shuffle=False, seed=0)[0].names == pets.names[:7]
    with pytest.raises(TTCError, match="20 images make 1 to 20 shards, got 21"):
        split_images(pets, 21, shuffle=True, seed=0)


def test_an_array_is_split_as_files_are() -> None:
    pixels = np.arange(5 * 8 * 8 * 3, dtype=np.uint8).reshape(5, 8, 8, 3)
    images = ArrayImages("array", pixels, np.arange(5), 5)
    parts = split_images(InputImages(images, list("abcde"), None, True), 2, shuffle=False, seed=0)
    assert [list(part.names) for part in parts] == [["a", "b", "c"], ["d", "e"]]
    np.testing.assert_array_equal(parts[1].images.pixels([1]), pixels[4:])


def test_shards_are_jobs_of_their_own_and_are_merged(pets: InputImages, tmp_path: Path) -> None:
    job = ShardedJob(SETTINGS, pets, tmp_path / "out", 3)
    assert job.missing() == [0, 1, 2]
    files = [run_shard(adapter, job.settings[i], job.shards[i]) for i in range(3)]
    job.write(1, files[1])
    assert ShardedJob(SETTINGS, pets, tmp_path / "out", 3).missing() == [0, 2]  # resumes
    job.write(0, files[0])
    job.write(2, files[2])
    summary = job.merge()
    assert (summary["shards"], summary["images"]) == (3, 20)
    with (tmp_path / "out" / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["path"] for row in rows) == list(pets.names)
    assert summary["accuracy"] == pytest.approx(sum(row["class"] == row["label"] for row in rows) / 20, abs=1e-4)
    assert sum(summary["predicted_classes"].values()) == 20
    alone = AdaptationJob(job.settings[2], job.shards[2], tmp_path / "alone")
    alone.run(adapter())
    assert (tmp_path / "alone" / "predictions.csv").read_bytes() == files[2]["predictions.csv"]
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["job"]["shard"] == "1-3/3"


def test_a_folder_of_something_else_is_left_alone(pets: InputImages, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").touch()
    make = partial(ShardedJob, SETTINGS, pets, tmp_path / "out")
    with pytest.raises(TTCError, match="out contains other files; choose another folder with --out"):
        make(2)
    (tmp_path / "out" / "thesis.tex").unlink()
    make(2).write(0, run_shard(adapter, make(2).settings[0], make(2).shards[0]))
    with pytest.raises(TTCError, match="out contains other files"):
        make(3)
    other = JobSettings(**{**vars(SETTINGS), "batch_size": 5})
    with pytest.raises(TTCError, match=r"contains another run \(different: batch_size\)"):
        ShardedJob(other, pets, tmp_path / "out", 2).missing()
