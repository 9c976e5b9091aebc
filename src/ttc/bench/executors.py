"""Executors: run tasks in this process or in worker processes, and yield the result of each as it ends.

A task runs with the same number of torch threads either way, so its result is the same to the bit. Workers are fresh
processes (spawn), each running one task after another; one that dies fails only its task, and all end when their
parent does, within a second, however it ends.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any

from ttc.bench.allocator import reuse_memory
from ttc.errors import TTCError

Task = Callable[[], Any]


@dataclass(frozen=True)
class TaskResult:
    """The result of a task: its value, or the error that ended it."""

    value: Any
    error: str | None
    expected: bool  # the error is a TTCError, which the user can correct
    seconds: float
    environment: Mapping[str, str | int | None] | None = None  # where it ran, if not on this machine


class LocalExecutor:
    """Runs tasks on this machine: in this process, or for more than one worker in as many others.

    A context manager: workers start when there is work for them and end with the block.

    Args:
        workers: The number of processes.
        threads: Torch threads per task.
    """

    def __init__(self, workers: int, threads: int) -> None:
        if workers < 1:
            raise TTCError(f"the number of workers must be at least 1, got {workers}")
        self.workers, self.threads = workers, threads
        self._idle: list[_Worker] = []
        self._busy: dict[_Worker, tuple[int, float]] = {}  # the index of its task, and since when

    def __enter__(self) -> "LocalExecutor":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        workers = [*self._idle, *self._busy]
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.process.join()
            worker.connection.close()
        self._idle, self._busy = [], {}

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, TaskResult]]:
        """Run every task and yield its index and result as it ends."""
        return self._run_here(tasks) if self.workers == 1 else self._run_in_workers(tasks)

    def _run_here(self, tasks: Sequence[Task]) -> Iterator[tuple[int, TaskResult]]:
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            yield from ((index, execute(task)) for index, task in enumerate(tasks))
        finally:
            torch.set_num_threads(before)

    def _run_in_workers(self, tasks: Sequence[Task]) -> Iterator[tuple[int, TaskResult]]:
        waiting = deque(enumerate(tasks))
        while waiting or self._busy:
            while waiting and len(self._busy) < self.workers:
                worker = self._idle.pop() if self._idle else _start_worker(self.threads)
                index, task = waiting.popleft()
                worker.connection.send(task)
                self._busy[worker] = (index, time.perf_counter())
            ready = wait([worker.connection for worker in self._busy])
            for worker in [worker for worker in self._busy if worker.connection in ready]:
                index, since = self._busy.pop(worker)
                try:
                    result: TaskResult = worker.connection.recv()
                    self._idle.append(worker)
                except (EOFError, OSError):
                    result = _dead_worker_result(worker, time.perf_counter() - since)
                yield index, result


def execute(task: Task, passes: tuple[type[Exception], ...] = ()) -> TaskResult:
    """Run a task here and return its value or its error.

    Args:
        task: The task.
        passes: Errors that are raised instead, because they are not the task's own.
    """
    start = time.perf_counter()
    try:
        value = task()
    except passes:
        raise
    except TTCError as error:
        return TaskResult(None, str(error), True, time.perf_counter() - start)
    except Exception as error:
        return TaskResult(None, f"{type(error).__name__}: {error}", False, time.perf_counter() - start)
    return TaskResult(value, None, False, time.perf_counter() - start)


@dataclass(frozen=True, eq=False)
class _Worker:
    process: BaseProcess
    connection: "Connection[Any, Any]"


def _start_worker(threads: int) -> _Worker:
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_work, args=(theirs, threads), daemon=True)
    process.start()
    theirs.close()  # so that the end of the worker is the end of the pipe
    return _Worker(process, ours)


def _dead_worker_result(worker: _Worker, seconds: float) -> TaskResult:
    worker.process.join()
    worker.connection.close()
    error = f"the worker process ended with exit code {worker.process.exitcode}, perhaps because memory ran out"
    return TaskResult(None, error, False, seconds)


def _work(connection: "Connection[Any, Any]", threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import torch  # seconds, during which the parent may die: the thread above watches already

    torch.set_num_threads(threads)
    reuse_memory()
    while True:
        try:
            task: Task = connection.recv()
        except EOFError:
            return
        connection.send(execute(task))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
