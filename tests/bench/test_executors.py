import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch

from ttc.bench.executors import LocalExecutor, Task
from ttc.errors import TTCError

TASKS: list[Task] = [
    partial(pow, 2, 10),
    partial(int, "x"),
    partial(torch.get_num_threads),
    partial(os.getpid),
]


def test_in_turn_in_this_process() -> None:
    before = torch.get_num_threads()
    with LocalExecutor(1, threads=3) as executor:
        found = list(executor.run(TASKS))
    assert [index for index, _ in found] == [0, 1, 2, 3]
    assert [result.value for _, result in found] == [1024, None, 3, os.getpid()]
    assert found[1][1].error == "ValueError: invalid literal for int() with base 10: 'x'"
    assert not found[1][1].expected
    assert torch.get_num_threads() == before


def test_in_other_processes_that_may_die() -> None:
    tasks: list[Task] = [*TASKS, partial(os._exit, 3), *TASKS]
    with LocalExecutor(2, threads=1) as executor:
        found = dict(executor.run(tasks))
        again = dict(executor.run([partial(os.getpid)]))
    assert sorted(found) == list(range(9))
    assert [found[index].value for index in (0, 2, 5, 7)] == [1024, 1, 1024, 1]
    assert found[4].error == "the worker process ended with exit code 3, perhaps because memory ran out"
    pids = {found[index].value for index in (3, 8)}
    assert os.getpid() not in pids
    assert again[0].value not in {None, os.getpid()}
    assert found[6].error == found[1].error == "ValueError: invalid literal for int() with base 10: 'x'"


def test_at_least_one_worker() -> None:
    with pytest.raises(TTCError, match="the number of workers must be at least 1, got 0"):
        LocalExecutor(0, 1)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="reads the process table of Linux")
def test_workers_end_with_their_parent() -> None:
    code = (
        "from functools import partial; import time; from ttc.bench.executors import LocalExecutor\n"
        "if __name__ == '__main__':\n"
        "    with LocalExecutor(2, 1) as executor:\n"
        "        list(executor.run([partial(time.sleep, 0), *[partial(time.sleep, 99)] * 2]))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])

    def children() -> list[str]:
        found = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        return [pid for pid in found if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]

    def asleep(pid: str) -> bool:
        return (Path("/proc") / pid).exists() and Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"

    try:
        end = time.monotonic() + 240  # importing torch takes long on a busy machine
        while len(children()) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        workers = children()
        assert len(workers) == 2
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    while any(map(asleep, workers)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(asleep, workers))
