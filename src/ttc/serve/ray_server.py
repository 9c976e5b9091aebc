"""The same application on Ray Serve: Ray places it, restarts it, and routes requests to it.

A stream is one adapter whose steps depend on each other, so that an application has one replica; a replica that is
restarted resumes from the last save.
"""

import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from ttc.errors import TTCError
from ttc.serve.local_server import bind
from ttc.serve.serve_settings import ServeSettings
from ttc.serve.served_model import ServedModel

APPLICATION = "ttc"
REACHABLE_SECONDS = 5.0


def build_replica_app(settings: ServeSettings, threads: int | None) -> Any:
    """Build the application in the process of a replica.

    Args:
        settings: What is served, and the limits.
        threads: Threads of torch; None leaves Ray's choice.
    """
    import torch

    from ttc.serve.application import create_app

    if threads is not None:
        torch.set_num_threads(threads)
    return create_app(settings)


def make_deployment(settings: ServeSettings, threads: int | None = None) -> Any:
    """Return the Ray Serve application, for ``ray.serve.run``.

    Args:
        settings: What is served, and the limits.
        threads: Threads of torch, and the processors that the replica reserves; one unless given.
    """
    serve = import_module("ray.serve")

    class TTCReplica:
        """Handles requests as the application does."""

    def build() -> Any:  # Ray recognizes functions alone
        return build_replica_app(settings, threads)

    gpus = {"num_gpus": 1} if settings.device.startswith("cuda") else {}
    deployment = serve.deployment(
        name="ttc",
        num_replicas=1,  # two would each learn from half of a stream
        max_ongoing_requests=settings.max_requests
        + 8,  # the application itself sends 429, and replies to health checks
        max_queued_requests=4 * settings.max_requests,
        graceful_shutdown_timeout_s=settings.timeout + 30,
        max_constructor_retry_count=1,
        ray_actor_options={"num_cpus": threads or 1, **gpus},
    )(serve.ingress(build)(TTCReplica))
    return deployment.bind()


def serve_on_ray(
    settings: ServeSettings,
    host: str,
    port: int,
    address: str | None = None,
    threads: int | None = None,
    on_start: Callable[[str], None] = lambda url: None,
) -> None:
    """Deploy to Ray Serve, and take it down again when a signal comes; every stream is saved then.

    Args:
        settings: What is served, and the limits.
        host: The address that Ray's proxies listen on.
        port: Their port.
        address: The cluster to join; None starts one on this machine, which ends with this process.
        threads: Threads of torch, and the processors that the replica reserves.
        on_start: Called with the URL when the application is ready.

    Raises:
        TTCError: If the cluster cannot be reached, or the application does not start.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anyone
    ray, serve = import_module("ray"), import_module("ray.serve")
    if port == 0:
        raise TTCError("Ray Serve needs a port of its own: choose one with --port, such as 8000")
    if address is None:
        bind(host, port).close()
        ServedModel(replace(settings, device="cpu"))  # what is wrong is found before Ray starts, which takes long
    _connect(ray, address)
    stop = _stop_at_signals()  # after Ray, which sets handlers of its own
    try:
        _deploy(serve, settings, host, port, threads)
        on_start(f"http://{host}:{port}")
        stop.wait()
    finally:
        serve.delete(APPLICATION)  # waits until the replica has saved
        if address is None:
            serve.shutdown()
        ray.shutdown()


def _connect(ray: Any, address: str | None) -> None:
    try:
        if address and (parts := urlsplit(address if "//" in address else f"//{address}")).port:
            socket.create_connection(
                (parts.hostname or "", parts.port), REACHABLE_SECONDS
            ).close()  # Ray tries for minutes
        options = {} if address else {"include_dashboard": False}
        ray.init(address=address or "local", logging_level="warning", log_to_driver=False, **options)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise TTCError(
            f"the Ray cluster at {address or 'this machine'} cannot be joined ({reason}): start one with "
            "ray start --head"
        ) from error


def _deploy(serve: Any, settings: ServeSettings, host: str, port: int, threads: int | None) -> None:
    try:
        serve.start(http_options={"host": host, "port": port, "request_timeout_s": settings.timeout + 10})
        serve.run(make_deployment(settings, threads), name=APPLICATION, route_prefix="/")
    except RuntimeError as error:
        raise TTCError(f"the application does not start on Ray Serve: {_reason(serve) or error}") from error


def _reason(serve: Any) -> str:
    """Return the error of a replica that did not start, without its stack trace."""
    application = serve.status().applications.get(APPLICATION)
    messages = [deployment.message for deployment in application.deployments.values()] if application else []
    lines = [line for message in messages for line in message.splitlines() if "TTCError: " in line]
    return lines[-1].partition("TTCError: ")[2].strip() if lines else ""


def _stop_at_signals() -> threading.Event:
    stop = threading.Event()
    with suppress(ValueError):  # not the main thread
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
    return stop
