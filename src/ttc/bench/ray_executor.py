"""Run tasks on a Ray cluster, with the interface of :class:`ttc.bench.executors.LocalExecutor`; imports Ray, lazily.

The driver submits tasks with the resources they declare, collects each result as it ends, and submits a task again
when its worker or node was lost. Large values that tasks share are put into Ray's object store, which copies them once
to each node that needs them.
"""

import platform
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from ttc.bench.allocator import reuse_memory
from ttc.bench.executors import Task, TaskResult, execute
from ttc.bench.node_versions import check_versions, version_difference, versions
from ttc.bench.ray_connection import connect, import_ray, node_resources
from ttc.errors import TTCError

ATTEMPTS = 4  # of a task whose worker or node is lost each time
STARVED_SECONDS = 60.0  # that tasks wait while no node has the resources of one
SUBMITTED = 1000  # tasks that Ray has at once, so that an autoscaler sees the demand and the driver stays small


class Submitted(NamedTuple):
    """A function that runs on the cluster: a reference to its value, and one to a small result when it ended."""

    value: Any
    ended: Any


class RayExecutor:
    """Runs tasks on a Ray cluster.

    A context manager: it connects at the start, and at the end cancels what still runs and disconnects.

    Args:
        threads: Torch threads per task.
        address: ``host:port`` of a cluster, or ``auto`` for the one started on this machine. By default the environment
            variable ``RAY_ADDRESS``, else a Ray of this machine alone, for as long as the executor is open.
        cpus: Processors that a task declares; by default its threads.
        gpus: GPUs that a task declares; a fraction puts several tasks on one.
        workers: The most tasks at a time; by default as many as the cluster has room for.
        shared_files: Every node has the files of the driver at the same paths, so that they are not shipped.

    Raises:
        TTCError: On entering, if Ray is not installed, the cluster cannot be reached or runs other versions, or no node
            has the resources of one task.
    """

    def __init__(
        self,
        threads: int,
        address: str | None = None,
        cpus: float | None = None,
        gpus: float = 0.0,
        workers: int | None = None,
        shared_files: bool = False,
    ) -> None:
        self.threads, self.cpus, self.gpus = threads, float(threads) if cpus is None else cpus, gpus
        self.address, self.asked, self.shared_files = address, workers, shared_files
        if self.cpus <= 0 or gpus < 0:
            raise TTCError(f"a cell needs more than 0 CPUs and at least 0 GPUs, got {self.cpus:g} and {gpus:g}")
        if gpus > 1 and gpus != int(gpus):
            raise TTCError(f"a cell has a fraction of one GPU or a whole number of them, got {gpus:g}")
        self.workers = workers or 1
        self.modules: dict[str, str] = {}  # the source of a user's own modules, by name
        self.lost = 0  # tasks that ran again because their worker or node was lost
        self._outstanding: dict[Any, int] = {}  # submitted tasks and their indices

    def __enter__(self) -> "RayExecutor":
        ray = connect(self.address)
        try:
            self._check_resources(ray)
            check_versions(ray)
        except BaseException:
            ray.shutdown()
            raise
        self.workers = self.asked or max(1, sum(self._room(node) for node in node_resources(ray)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ray = import_ray()
        if ray.is_initialized():
            for reference in self._outstanding:
                ray.cancel(reference, force=True)
            ray.shutdown()  # ends the workers of this driver, wherever they run
        self._outstanding = {}

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, TaskResult]]:
        """Run every task and yield its index and result as it ends; one whose worker was lost runs again.

        Raises:
            TTCError: If the nodes with the resources of a task are lost and none replaces them.
        """
        ray = import_ray()
        remote = ray.remote(_run).options(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=0)
        waiting, attempts = deque(range(len(tasks))), [0] * len(tasks)
        most = self.asked or max(SUBMITTED, 2 * self.workers)
        here, heard = versions(), time.monotonic()
        while waiting or self._outstanding:
            while waiting and len(self._outstanding) < most:
                index = waiting.popleft()
                attempts[index] += 1
                self._outstanding[remote.remote(tasks[index], self.threads, self.modules, here)] = index
            ready, _ = ray.wait(list(self._outstanding), timeout=1.0)
            for reference in ready:
                index, heard = self._outstanding.pop(reference), time.monotonic()
                result = _collect(ray, reference)
                if not isinstance(result, str):
                    yield index, result
                elif attempts[index] < ATTEMPTS:
                    waiting.append(index)
                    self.lost += 1
                else:
                    yield index, _lost(result, attempts[index])
            if not ready:
                heard = self._check_room_left(ray, heard)

    def put(self, value: object) -> Any:
        """Put a value into the object store and return a reference to it, which :func:`fetch` resolves in a task."""
        return import_ray().put(value)

    def submit(self, function: Callable[..., Any], *arguments: object) -> "Submitted":
        """Run a function on the cluster; its value stays in the object store.

        Ray runs it again if the value is lost with its node. References among the arguments are passed as values.
        """
        remote = import_ray().remote(_produce)
        options = {"num_cpus": self.cpus, "num_gpus": 0, "max_retries": ATTEMPTS - 1, "num_returns": 2}
        return Submitted(*remote.options(**options).remote(function, self.modules, *arguments))

    def finished(self, submitted: Sequence["Submitted"]) -> Iterator[TaskResult]:
        """Yield a result, without its value, for each submitted function as it ends."""
        ray, left = import_ray(), [one.ended for one in submitted]
        heard = time.monotonic()
        while left:
            ready, left = ray.wait(left, timeout=1.0)
            heard = time.monotonic() if ready else self._check_room_left(ray, heard)
            for reference in ready:
                result = _collect(ray, reference)
                yield _lost(result, ATTEMPTS) if isinstance(result, str) else result

    def object_store_bytes(self) -> int:
        """Return the size of the smallest object store among the nodes that can run a task."""
        nodes = [node for node in node_resources(import_ray()) if self._room(node)]
        return int(min(node.get("object_store_memory", 0.0) for node in nodes))

    def _room(self, resources: Mapping[str, float]) -> int:
        """How many tasks a node can run at a time."""
        by_gpu = int(resources.get("GPU", 0.0) / self.gpus + 1e-9) if self.gpus else sys.maxsize
        return min(int(resources.get("CPU", 0.0) / self.cpus + 1e-9), by_gpu)

    def _check_resources(self, ray: Any) -> None:
        nodes = node_resources(ray)
        if any(self._room(node) for node in nodes):
            return
        most = {kind: max((node.get(kind, 0.0) for node in nodes), default=0.0) for kind in ("CPU", "GPU")}
        for kind, asked, option in (("GPU", self.gpus, "--gpus-per-cell"), ("CPU", self.cpus, "--cpus-per-cell")):
            if asked > most[kind]:
                raise TTCError(
                    f"a cell needs {asked:g} {kind}s and no node of the cluster has more than {most[kind]:g}; "
                    f"lower {option}, or add a node"
                )
        raise TTCError(
            f"a cell needs {self.cpus:g} CPUs and {self.gpus:g} GPUs, which no node of the cluster has together; "
            "lower --cpus-per-cell or --gpus-per-cell"
        )

    def _check_room_left(self, ray: Any, heard: float) -> float:
        """Return since when tasks are waiting with no node for them; stop when that is too long."""
        if any(self._room(node) for node in node_resources(ray)):
            return time.monotonic()
        if time.monotonic() - heard > STARVED_SECONDS:
            raise TTCError(
                "the nodes of the cluster that could run a cell are lost and none replaced them; finished cells are "
                "stored: add a node and run the same command again to resume"
            )
        return heard


def fetch(reference: Any) -> Any:
    """Return the value of a reference: a view of the object store of this node where it is an array."""
    return import_ray().get(reference)


def reference_key(reference: Any) -> str:
    """Return a name of a reference, equal in all processes."""
    return str(reference.hex())


def _run(task: Task, threads: int, modules: Mapping[str, str], wanted: Mapping[str, str]) -> TaskResult:
    """Run a task in a worker of Ray, unless its node joined the cluster later and has other versions."""
    if difference := version_difference(versions(), wanted):
        return TaskResult(None, f"the node {platform.node()} {difference}", True, 0.0)
    _import_modules(tuple(sorted(modules.items())))
    import torch

    from ttc.bench.environment import environment

    torch.set_num_threads(threads)
    reuse_memory()
    result = execute(task, passes=(import_ray().exceptions.RayError,))  # a lost value is the cluster's fault
    return replace(result, environment=environment())


@cache
def _import_modules(modules: tuple[tuple[str, str], ...]) -> None:
    """Make a user's own modules importable where their files are not."""
    missing = [(name, source) for name, source in modules if find_spec(name) is None]
    if missing:
        folder = tempfile.mkdtemp(prefix="ttc-modules-")
        for name, source in missing:
            Path(folder, f"{name}.py").write_text(source, encoding="utf-8", newline="")
        sys.path.append(folder)


def _produce(function: Callable[..., Any], modules: Mapping[str, str], *arguments: object) -> tuple[Any, TaskResult]:
    """Run a function in a worker of Ray; the second value is small, and tells that it ended."""
    _import_modules(tuple(sorted(modules.items())))
    return function(*arguments), TaskResult(None, None, False, 0.0)


def _collect(ray: Any, reference: Any) -> TaskResult | str:
    """Return the result of a task that ended, or what happened if its worker or a value that it needs was lost."""
    try:
        result: TaskResult = ray.get(reference)
    except ray.exceptions.RayError as raised:
        error: BaseException = raised
        while isinstance(error, ray.exceptions.RayTaskError):  # an error of the task, or of one that it depends on
            error = error.cause
        if isinstance(error, ray.exceptions.RayError):
            return type(error).__name__
        return TaskResult(None, _sentence(error), isinstance(error, TTCError), 0.0)
    return result


def _sentence(error: BaseException) -> str:
    return str(error) if isinstance(error, TTCError) else f"{type(error).__name__}: {str(error).strip()}"


def _lost(what: str, attempts: int) -> TaskResult:
    error = f"the worker was lost in each of {attempts} attempts ({what}), perhaps because memory ran out"
    return TaskResult(None, error, False, 0.0)
