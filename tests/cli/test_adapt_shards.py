"""``ttc adapt --shards``: on this machine and on a cluster, with equal predictions."""

import csv
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.ray_cluster import RayCluster
from ttc.errors import TTCError


def predictions(folder: Path) -> list[list[str]]:
    with (folder / "predictions.csv").open() as file:
        return list(csv.reader(file))


def test_shards_and_again(run: Run, folder: Path, tmp_path: Path) -> None:
    output = run(folder, "--shards", 3, "--out", "out", "--workers", 1)
    assert output.startswith("0 ")
    assert "[3/3] shard 3: 10 images in " in output
    assert "images             30" in output
    assert "shards             3" in output
    assert len(predictions(tmp_path / "out")) == 31
    (tmp_path / "out" / "shard-2-of-3" / "progress.json").unlink()
    with pytest.raises(TTCError, match="shard-2-of-3 contains other files"):
        run(folder, "--shards", 3, "--out", "out")
    for path in (tmp_path / "out" / "shard-2-of-3").iterdir():
        path.unlink()
    (tmp_path / "out" / "shard-2-of-3").rmdir()
    output = run(folder, "--shards", 3, "--out", "out", "--workers", 1)
    assert "resuming after 2 of 3 shards" in output
    assert "[3/3] shard 2: 10 images" in output
    assert "all shards in out are complete" in run(folder, "--shards", 3, "--out", "out")


def test_unreadable_files_are_named_and_a_failing_shard_can_be_retried(run: Run, folder: Path, tmp_path: Path) -> None:
    (folder / "cat" / "0.png").write_text("no image")
    output = run(folder, "--shards", 2, "--out", "out", "--workers", 1)
    assert output.startswith("1 ")
    assert "skipped cat/0.png" in output
    for path in (folder / "emu").iterdir():
        path.write_text("no image")
    output = run(folder, "--shards", 3, "--out", "other", "--workers", 1, "--no-shuffle")
    assert output.startswith("1 ")
    assert "shard 3 of 3 failed: none of the 10 images can be read" in output
    assert "2 of 3 shards are saved; run the same command again to retry" in output


def test_workers_need_shards(run: Run, folder: Path) -> None:
    with pytest.raises(TTCError, match="several workers adapt one stream per shard: give their number with --shards"):
        run(folder, "--workers", 2)


@pytest.mark.slow
def test_on_a_cluster_as_on_this_machine(run: Run, folder: Path, tmp_path: Path, ray_cluster: RayCluster) -> None:
    run(folder, "--shards", 3, "--out", "here", "--workers", 1)
    output = run(Path("pets"), "--shards", 3, "--out", "there", "--executor", "ray", "--address", ray_cluster.address)
    assert output.startswith("0 ")
    assert predictions(tmp_path / "here") == predictions(tmp_path / "there")
    assert {path.name for path in (tmp_path / "here").iterdir()} == {p.name for p in (tmp_path / "there").iterdir()}
