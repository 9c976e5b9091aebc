"""Run tasks on a Ray cluster, with the interface of :class:`ttc.bench.executors.LocalExecutor`; imports Ray, lazily.

The driver submits tasks with the resources they declare, collects each result as it ends, and submits a task again
when its worker or node was lost. Large values that tasks share are put into Ray's object store, which copies them once
to each node that needs them.
"""

import importlib
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import ttc
from ttc.bench.executors import REUSE_MEMORY, Task, TaskResult, added_environment, execute
from ttc.errors import TTCError

REQUIREMENT = "ray>=2.60"  # the extra ``ray``
ATTEMPTS = 4  # of a task whose worker or node is lost each time
CONNECT_SECONDS = 30.0  # until a cluster must have accepted a driver
STARVED_SECONDS = 60.0  # that tasks wait while no node has the resources of one
SUBMITTED = 1000  # tasks that Ray has at once, so that an autoscaler sees the demand and the driver stays small
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent anywhere
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # what later versions do; else a warning
}
AS_LOCAL_WORKERS = {**REUSE_MEMORY, "RAY_worker_niceness": "0"}  # of a Ray of this machine alone
PROBE = "import sys, ray; ray.init(sys.argv[1], log_to_driver=False, logging_level='error')"


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
        ray = _connect(self.address)
        try:
            self._check_resources(ray)
            _check_versions(ray)
        except BaseException:
            ray.shutdown()
            raise
        self.workers = self.asked or max(1, sum(self._room(node) for node in _nodes(ray)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ray = _import_ray()
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
        ray = _import_ray()
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
        return _import_ray().put(value)

    def submit(self, function: Callable[..., Any], *arguments: object) -> "Submitted":
        """Run a function on the cluster; its value stays in the object store.

        Ray runs it again if the value is lost with its node. References among the arguments are passed as values.
        """
        remote = _import_ray().remote(_produce)
        options = {"num_cpus": self.cpus, "num_gpus": 0, "max_retries": ATTEMPTS - 1, "num_returns": 2}
        return Submitted(*remote.options(**options).remote(function, self.modules, *arguments))

    def finished(self, submitted: Sequence["Submitted"]) -> Iterator[TaskResult]:
        """Yield a result, without its value, for each submitted function as it ends."""
        ray, left = _import_ray(), [one.ended for one in submitted]
        heard = time.monotonic()
        while left:
            ready, left = ray.wait(left, timeout=1.0)
            heard = time.monotonic() if ready else self._check_room_left(ray, heard)
            for reference in ready:
                result = _collect(ray, reference)
                yield _lost(result, ATTEMPTS) if isinstance(result, str) else result

    def object_store_bytes(self) -> int:
        """Return the size of the smallest object store among the nodes that can run a task."""
        nodes = [node for node in _nodes(_import_ray()) if self._room(node)]
        return int(min(node.get("object_store_memory", 0.0) for node in nodes))

    def _room(self, resources: Mapping[str, float]) -> int:
        """How many tasks a node can run at a time."""
        by_gpu = int(resources.get("GPU", 0.0) / self.gpus + 1e-9) if self.gpus else sys.maxsize
        return min(int(resources.get("CPU", 0.0) / self.cpus + 1e-9), by_gpu)

    def _check_resources(self, ray: Any) -> None:
        nodes = _nodes(ray)
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
        if any(self._room(node) for node in _nodes(ray)):
            return time.monotonic()
        if time.monotonic() - heard > STARVED_SECONDS:
            raise TTCError(
                "the nodes of the cluster that could run a cell are lost and none replaced them; finished cells are "
                "stored: add a node and run the same command again to resume"
            )
        return heard


def fetch(reference: Any) -> Any:
    """Return the value of a reference: a view of the object store of this node where it is an array."""
    return _import_ray().get(reference)


def reference_key(reference: Any) -> str:
    """Return a name of a reference, equal in all processes."""
    return str(reference.hex())


def versions() -> dict[str, str]:
    """Return the versions that must be equal on all nodes, so that a cell has the same result everywhere."""
    return {
        "ttc": ttc.__version__,
        "torch": version("torch").partition("+")[0],
        "numpy": version("numpy"),
        "python": ".".join(platform.python_version_tuple()[:2]),
    }


def _difference(there: Mapping[str, str], here: Mapping[str, str]) -> str:
    """Say which version of a node is not that of the driver; empty if all are."""
    for name, wanted in here.items():
        if there[name] != wanted:
            return (
                f"has {name} {there[name]} and the driver {wanted}; "
                "install the same version on both, so that cells have the same results everywhere"
            )
    return ""


def _run(task: Task, threads: int, modules: Mapping[str, str], wanted: Mapping[str, str]) -> TaskResult:
    """Run a task in a worker of Ray, unless its node joined the cluster later and has other versions."""
    if difference := _difference(versions(), wanted):
        return TaskResult(None, f"the node {platform.node()} {difference}", True, 0.0)
    _import_modules(tuple(sorted(modules.items())))
    import torch

    from ttc.bench.environment import environment

    torch.set_num_threads(threads)
    result = execute(task, passes=(_import_ray().exceptions.RayError,))  # a lost value is the cluster's fault
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


def require_ray() -> None:
    """Check that Ray is installed.

    Raises:
        TTCError: If it is not; the sentence says how to install it.
    """
    if find_spec("ray") is None:
        raise TTCError(f"--executor ray needs Ray, which is not installed: pip install '{REQUIREMENT}'")


@cache
def _import_ray() -> Any:
    require_ray()
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", FutureWarning)
            return importlib.import_module("ray")
    except ImportError as error:
        raise TTCError(f"Ray cannot be imported ({error}): pip install --upgrade '{REQUIREMENT}'") from error


def _connect(address: str | None) -> Any:
    ray = _import_ray()
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    if address != "local":
        _check_address(address)
    more = {"include_dashboard": False} if address == "local" else {}
    try:
        with warnings.catch_warnings(), added_environment(AS_LOCAL_WORKERS if address == "local" else {}):
            warnings.simplefilter("ignore")  # about Ray's own future versions
            ray.init(address, log_to_driver=False, logging_level="error", **more)
    except (RuntimeError, ConnectionError, ValueError) as error:
        raise TTCError(f"Ray at {address} does not accept this driver: {_first_sentence(str(error))}") from error
    return ray


def _check_address(address: str) -> None:
    """Reject an address that does not respond, in bounded time: Ray itself waits for minutes."""
    host, _, port = address.rpartition(":")
    advice = "check --address, or start a cluster with: ray start --head"
    if "://" in address:
        raise TTCError(
            f"the address {address} is not host:port; run ttc on a node of the cluster and give its --address"
        )
    if address != "auto":
        if not host or not port.isdigit():
            raise TTCError(f"the address of a Ray cluster is host:port or auto, got '{address}'")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise TTCError(f"no Ray cluster can be reached at {address} ({reason}); {advice}") from error
    command = [sys.executable, "-c", PROBE, address]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=CONNECT_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise TTCError(
            f"no Ray cluster responds at {address} within {CONNECT_SECONDS:.0f} seconds; {advice}"
        ) from error
    if found.returncode:
        reason = _first_sentence((found.stderr.strip().splitlines() or ["no reason given"])[-1])
        raise TTCError(f"Ray at {address} does not accept this driver ({reason}); {advice}")


def _first_sentence(text: str) -> str:
    line = " ".join(text.split())
    return line.partition(". ")[0].rstrip(".")


def _nodes(ray: Any) -> list[Mapping[str, float]]:
    """The resources of the nodes that are alive."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _check_versions(ray: Any) -> None:
    """Compare the versions of all nodes with those of this process.

    Raises:
        TTCError: If a node has others; the sentence names the node, and both versions.
    """

    def node_versions() -> object:  # pickled by value: a node may have no ttc at all
        try:
            from ttc.bench.ray_executor import versions
        except ImportError as error:
            return str(error)
        return versions()

    here = versions()
    pin = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    probe = ray.remote(node_versions)
    asked = {}
    for node in ray.nodes():
        if node["Alive"]:
            where = pin(node["NodeID"], soft=False)
            asked[probe.options(num_cpus=0, scheduling_strategy=where).remote()] = node["NodeManagerAddress"]
    ready, late = ray.wait(list(asked), num_returns=len(asked), timeout=2 * CONNECT_SECONDS)
    for reference in ready:
        try:
            there = ray.get(reference)
        except ray.exceptions.RayError:
            continue  # the node is gone already; the others run the tasks
        if isinstance(there, str):
            raise TTCError(
                f"the node {asked[reference]} cannot import ttc {ttc.__version__} ({there}): install it there"
            )
        if difference := _difference(there, here):
            raise TTCError(f"the node {asked[reference]} {difference}")
    if late:
        raise TTCError(f"the node {asked[late[0]]} started no worker within {2 * CONNECT_SECONDS:.0f} seconds")
