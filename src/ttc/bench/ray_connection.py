"""Connect to a Ray cluster, or say in bounded time why that cannot be done; imports Ray, lazily."""

import importlib
import os
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any

from ttc.errors import TTCError

REQUIREMENT = "ray>=2.60"  # the extra ``ray``
CONNECT_SECONDS = 30.0  # until a cluster must have accepted a driver
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent anywhere
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # what later versions do; else a warning
}
AS_LOCAL_WORKERS = {"RAY_worker_niceness": "0"}  # of a Ray of this machine alone
PROBE = "import sys, ray; ray.init(sys.argv[1], log_to_driver=False, logging_level='error')"


def require_ray() -> None:
    """Check that Ray is installed.

    Raises:
        TTCError: If it is not; the sentence says how to install it.
    """
    if find_spec("ray") is None:
        raise TTCError(f"--executor ray needs Ray, which is not installed: pip install '{REQUIREMENT}'")


@cache
def import_ray() -> Any:
    """Import Ray, without its messages.

    Raises:
        TTCError: If it is not installed, or cannot be imported.
    """
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


def connect(address: str | None) -> Any:
    """Connect this process, as a driver, to a cluster.

    Args:
        address: ``host:port`` or ``auto``; by default that of ``RAY_ADDRESS``, else a new Ray of this machine alone.

    Returns:
        The module ``ray``, connected.

    Raises:
        TTCError: If no cluster responds there, or it does not accept this driver.
    """
    ray = import_ray()
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    if address != "local":
        _check_address(address)
    more = {"include_dashboard": False} if address == "local" else {}
    try:
        with warnings.catch_warnings(), _added_environment(AS_LOCAL_WORKERS if address == "local" else {}):
            warnings.simplefilter("ignore")  # about Ray's own future versions
            ray.init(address, log_to_driver=False, logging_level="error", **more)
    except (RuntimeError, ConnectionError, ValueError) as error:
        raise TTCError(f"Ray at {address} does not accept this driver: {_first_sentence(str(error))}") from error
    return ray


def node_resources(ray: Any) -> list[Mapping[str, float]]:
    """Return the resources of each node that is alive."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


@contextmanager
def _added_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a process to be started, where they are not set already."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


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
