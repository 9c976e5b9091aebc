"""A real Ray cluster on this machine: a head and two workers of one CPU each, every one its own processes."""

import os
import signal
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

STORE = 100_000_000  # bytes of an object store


class RayCluster:
    """Starts the nodes; a test may kill a worker and start another."""

    def __init__(self) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's, about its own future versions
            from ray.cluster_utils import Cluster

            config = {"health_check_period_ms": 1000}  # a lost node is noticed in five seconds, not fifteen
            head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": STORE, "_system_config": config}
            self.cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        self.killed: Any = None
        self.workers = [self.add() for _ in range(2)]

    @property
    def address(self) -> str:
        """The address of the head, as ``host:port``."""
        return str(self.cluster.address)

    def add(self) -> Any:
        """Start a worker node."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.cluster.add_node(num_cpus=1, object_store_memory=STORE)

    def kill_one_of(self, pids: Sequence[int]) -> None:
        """Kill one of the worker nodes with these process ids, as a power failure would; only the first call does."""
        for node in self.workers if self.killed is None else ():
            pid = node.all_processes["raylet"][0].process.pid
            if pid in pids:
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
                for process in (pid, *map(int, children)):  # its workers would live on for a second
                    os.kill(process, signal.SIGKILL)
                self.killed = node
                return

    def replace_killed(self) -> None:
        """Start a node in place of the killed one, for the tests that follow."""
        self.cluster.remove_node(self.killed, allow_graceful=False)
        self.workers.remove(self.killed)
        self.workers.append(self.add())
        self.killed = None

    def stop(self) -> None:
        """End all processes."""
        self.cluster.shutdown()
