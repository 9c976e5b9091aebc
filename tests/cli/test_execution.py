"""``--executor ray`` as a user runs it, on a cluster of this machine."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.conftest import made_place
from tests.bench.conftest import place as place  # the fixture
from tests.bench.test_ray_executor import SLOW, free_cpus, wait_until
from tests.cli.test_run import GRID, WORKLOAD, ttc
from tests.ray_cluster import RayCluster
from ttc.bench.ray_executor import RayExecutor
from ttc.cli.execution import count_workers, make_executor
from ttc.errors import TTCError

pytest.importorskip("ray")


@pytest.mark.slow
def test_a_grid_on_a_cluster_and_again(ray_cluster: RayCluster, place: Path) -> None:
    grid = [*GRID, "--methods", "norm,own_methods:failing", "--corruptions", "fog", "--seeds", "0"]
    ray = ["--executor", "ray", "--address", ray_cluster.address]
    code, output = ttc("run", *grid, *ray, "--dry-run")
    assert code == 0
    assert re.search(r"2 cells, 2 to run: about \S+ \w+ with 2 workers \(\S+ \w+ of work\); nothing", output)
    code, output = ttc("run", *grid, *ray)
    assert code == 1
    assert "2 cells; results go to a.sqlite" in output
    assert "norm, fog 5, per-domain, batch 5, seed 0: " in output
    assert "failed: own_methods:failing, fog 5, per-domain, batch 5, seed 0: the model's outputs" in output
    assert not (place / "data").exists()  # everything is in the object store
    code, output = ttc("run", *grid, *ray, "--shared-files", "--store", "b.sqlite")
    assert (code, "norm, fog 5, per-domain, batch 5, seed 0: " in output) == (1, True)
    assert list((place / "data" / "cache").glob("fog*"))
    code, output = ttc("run", *GRID[:-2], "--methods", "norm", "--corruptions", "fog", "--seeds", "0", *GRID[-2:])
    assert (code, "1 cell, 1 finished before" in output) == (0, True)  # a cell is the same wherever it ran


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
def test_ctrl_c_ends_the_cells_on_the_cluster(ray_cluster: RayCluster, tmp_path: Path) -> None:
    made_place(tmp_path)
    (tmp_path / "slow_methods.py").write_text(SLOW.replace("{place}", str(tmp_path)))
    listening = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # behind nohup, too
    code = f"{listening}; from ttc.cli.app import main; main()"
    methods = "norm,slow_methods:slow(seconds=600.0)"
    grid = [*WORKLOAD, "--corruptions", "clean", "--methods", methods, "--store", "a.sqlite"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, "run", *grid, "--executor", "ray", "--address", ray_cluster.address],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(2)]
    wait_until(lambda: bool(list(tmp_path.glob("running-*"))))
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "[1/2] norm" in lines[1]
    assert "stopped: 1 of 2 cells finished and stored in a.sqlite; run the same command again to resume" in output
    assert "Traceback" not in output + errors
    assert free_cpus(ray_cluster) == 3


def test_a_study_takes_the_same_options(ray_cluster: RayCluster, place: Path) -> None:
    study = ["reproduce", "collapse", "--images", "8", "--corruptions", "fog", "--executor", "ray"]
    with pytest.raises(TTCError, match="a cell needs 2 GPUs and no node of the cluster has more than 0"):
        ttc(*study, "--address", ray_cluster.address, "--gpus-per-cell", "2")


def test_options_of_clusters_need_a_cluster() -> None:
    assert make_executor("local", threads=1) is None
    with pytest.raises(TTCError, match="--gpus-per-cell is for clusters: add --executor ray"):
        make_executor("local", threads=1, gpus=0.25)
    with pytest.raises(TTCError, match="Ray chooses the GPU of a cell: use --device cuda, not cuda:1"):
        make_executor("ray", threads=1, device="cuda:1")
    with pytest.raises(TTCError, match="need GPUs, --gpus-per-cell is 0; give a fraction"):
        make_executor("ray", threads=1, device="cuda", gpus=0)
    made = make_executor("ray", threads=2, device="cuda")
    assert made is not None
    assert (made.cpus, made.gpus) == (2, 1)


def test_the_number_of_workers_that_was_given_counts() -> None:
    assert count_workers(None, 4, given=False) == 4
    assert count_workers(RayExecutor(1, "nowhere"), 8, given=True) == 8
