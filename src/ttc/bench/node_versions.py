"""The versions that the driver and the nodes of a cluster must share."""

import platform
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import ttc
from ttc.bench.ray_connection import CONNECT_SECONDS
from ttc.errors import TTCError


def versions() -> dict[str, str]:
    """Return the versions that must be equal on all nodes, so that a cell has the same result everywhere."""
    return {
        "ttc": ttc.__version__,
        "torch": version("torch").partition("+")[0],
        "numpy": version("numpy"),
        "python": ".".join(platform.python_version_tuple()[:2]),
    }


def version_difference(there: Mapping[str, str], here: Mapping[str, str]) -> str:
    """Say which version of a node is not that of the driver; empty if all are."""
    for name, wanted in here.items():
        if there[name] != wanted:
            return (
                f"has {name} {there[name]} and the driver {wanted}; "
                "install the same version on both, so that cells have the same results everywhere"
            )
    return ""


def check_versions(ray: Any) -> None:
    """Compare the versions of all nodes with those of this process.

    Raises:
        TTCError: If a node has others; the sentence names the node, and both versions.
    """

    def report_versions() -> object:  # pickled by value: a node may have no ttc at all
        try:
            from ttc.bench.node_versions import versions
        except ImportError as error:
            return str(error)
        return versions()

    here = versions()
    pin = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    probe = ray.remote(report_versions)
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
        if difference := version_difference(there, here):
            raise TTCError(f"the node {asked[reference]} {difference}")
    if late:
        raise TTCError(f"the node {asked[late[0]]} started no worker within {2 * CONNECT_SECONDS:.0f} seconds")
