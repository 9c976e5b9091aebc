"""Tasks on a real cluster: a head and two workers, one of which is killed."""

import os
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.bench.conftest import workload
from tests.bench.test_runner import recorded, same
from tests.ray_cluster import RayCluster
from ttc.bench import Spec, Store, ray_executor
from ttc.bench.executors import Task
from ttc.bench.grid import Grid, cells
from ttc.bench.node_versions import versions
from ttc.bench.ray_executor import RayExecutor, fetch, reference_key
from ttc.bench.runner import run
from ttc.errors import TTCError

pytest.importorskip("ray")


def add(left: Any, right: Any) -> Any:
    """Add two values that are in the object store."""
    return fetch(left) + fetch(right)


def die_once(mark: Path) -> str:
    """End this process as a lost worker does, the first time."""
    if not mark.exists():
        mark.touch()
        os._exit(3)
    return "ran again"


def test_tasks_end_as_they_do_on_this_machine(
    ray_cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_executor, "ATTEMPTS", 2)  # each starts a worker
    tasks: list[Task] = [
        partial(pow, 2, 10),
        partial(int, "x"),
        partial(torch.get_num_threads),
        partial(os.getpid),
        partial(os._exit, 3),
    ]
    with RayExecutor(1, ray_cluster.address) as executor:
        assert executor.workers == 3
        first, second = executor.put(torch.ones(3)), executor.submit(torch.full, (3,), 2.0)
        broken = executor.submit(int, "x")
        assert {one.error for one in executor.finished([second, broken])} == {None, found_error("x")}
        tasks += [partial(add, first, second.value), partial(add, first, broken.value)]
        found = dict(executor.run([*tasks, partial(die_once, tmp_path / "died")]))
        assert reference_key(first) != reference_key(second.value)
    assert [found[index].value for index in (0, 2)] == [1024, 1]
    assert found[1].error == found[6].error == found_error("x")
    assert found[3].value != os.getpid()
    assert found[4].error is not None
    assert re.fullmatch(r"the worker was lost in each of 2 attempts \(\w+\), perhaps because .*", found[4].error)
    assert found[5].value.tolist() == [3.0] * 3
    assert found[7].value == "ran again"
    assert executor.lost == 2  # once of the task that dies always, once of the other
    assert found[0].environment is not None
    assert found[0].environment["torch"] == torch.__version__


def mark_and_sleep(mark: Path) -> None:
    mark.touch()
    time.sleep(600)


def test_leaving_early_ends_the_tasks(ray_cluster: RayCluster, tmp_path: Path) -> None:
    """Ctrl-C leaves the block too; tests/cli/test_execution.py presses it for real, in the slow run."""
    with RayExecutor(1, ray_cluster.address) as executor:
        assert next(executor.run([partial(pow, 2, 10), partial(mark_and_sleep, tmp_path / "asleep")]))[0] == 0
        wait_until((tmp_path / "asleep").exists)
    assert free_cpus(ray_cluster) == 3


def wait_until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not happened() and time.monotonic() < end:
        time.sleep(0.05)
    assert happened()


def free_cpus(cluster: RayCluster) -> float:
    """The processors of the cluster that no task has, as soon as that is all of them."""
    with RayExecutor(1, cluster.address):
        import ray

        wait_until(lambda: ray.available_resources().get("CPU") == 3)
        return float(ray.available_resources()["CPU"])


def found_error(text: str) -> str:
    return f"ValueError: invalid literal for int() with base 10: '{text}'"


SLOW = """
import os
import time
from pathlib import Path

from ttc.core import Adapter
from ttc.nn import frozen_copy


class Slow(Adapter):
    seconds = 0.0

    def adapt(self, x):
        running = Path("{place}", f"running-{os.getppid()}-{os.getpid()}")  # its node and itself
        running.touch()
        time.sleep(self.seconds)
        running.unlink()
        return self.model(x).logits


def slow(model, *, seconds: float = 0.3):
    adapter = Slow(frozen_copy(model))
    adapter.seconds = seconds
    return adapter
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="reads the process table of Linux")
def test_a_killed_node_loses_no_cell(ray_cluster: RayCluster, place: Path) -> None:
    """Equal to the bit to the same grid on this machine, although a node with data and running cells was lost."""
    (place / "slow_methods.py").write_text(SLOW.replace("{place}", str(place)))
    methods = (Spec("source"), Spec("ttc"), Spec("eata"), Spec.read("slow_methods:slow"))
    grid = Grid(methods, ("fog", "contrast", "clean"), images=12, batch_sizes=(4,), seeds=(0, 1))
    wanted = cells(grid, workload())
    executor = RayExecutor(1, ray_cluster.address)
    with Store(Path("here.sqlite")) as here, Store(Path("cluster.sqlite")) as there:
        list(run(wanted, workload(), here))
        for _ in run(wanted, workload(), there, executor=executor):
            running = [int(path.name.split("-")[1]) for path in place.glob("running-*")]
            ray_cluster.kill_one_of(running)
        one, other = recorded(here), recorded(there)
    assert len(one) == len(wanted) == 24
    assert sorted(one) == sorted(other)
    assert all(same(one[key], other[key]) for key in one)
    assert executor.lost >= 1
    ray_cluster.replace_killed()


def test_more_than_a_node_has_is_said_before_waiting(ray_cluster: RayCluster) -> None:
    for cpus, gpus, sentence in (
        (1, 4, "a cell needs 4 GPUs and no node of the cluster has more than 0; lower --gpus-per-cell"),
        (2, 0, "a cell needs 2 CPUs and no node of the cluster has more than 1; lower --cpus-per-cell"),
    ):
        with pytest.raises(TTCError, match=sentence), RayExecutor(1, ray_cluster.address, cpus, gpus):
            pass


def test_a_node_that_joined_later_with_other_versions_runs_no_task() -> None:
    late = ray_executor._run(os.getpid, 1, {}, {**versions(), "torch": "1.0"})
    assert late.expected
    assert f"has torch {versions()['torch']} and the driver 1.0; install the same" in str(late.error)


def test_resources_that_make_no_sense_are_rejected() -> None:
    with pytest.raises(TTCError, match="a cell needs more than 0 CPUs and at least 0 GPUs, got 0 and 0"):
        RayExecutor(1, cpus=0)
    with pytest.raises(TTCError, match=r"a fraction of one GPU or a whole number of them, got 1.5"):
        RayExecutor(1, gpus=1.5)
