"""The server on one machine: uvicorn, stopped by Ctrl-C or SIGTERM without losing a request or what was learned."""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from ttc.errors import TTCError
from ttc.serve.application import create_app
from ttc.serve.serve_settings import ServeSettings

BACKLOG = 1024


def bind(host: str, port: int) -> socket.socket:
    """Open the port to listen on, before anything that takes long.

    Args:
        host: A name or address of this machine.
        port: The port; 0 for any that is free.

    Raises:
        TTCError: If the port is in use or may not be opened, or the host is not one of this machine.
    """
    opened = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        opened = socket.socket(family, kind, protocol)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        opened.listen(BACKLOG)  # another server on this port fails here, not when the model is loaded
    except OSError as error:
        if opened is not None:
            opened.close()
        raise TTCError(
            f"cannot listen on port {port} of {host} ({error.strerror or error}): choose another with --port or --host"
        ) from error
    return opened


def serve_locally(settings: ServeSettings, opened: socket.socket, on_start: Callable[[], None] = lambda: None) -> None:
    """Serve until a signal stops it; what is queued is predicted, and every stream saved.

    Args:
        settings: What is served, and the limits.
        opened: The socket to listen on, as :func:`bind` opens it.
        on_start: Called when the server accepts requests.

    Raises:
        TTCError: If the model cannot be built, or a saved stream cannot be restored.
    """
    server = make_server(create_app(settings), settings, on_start)
    with _ignore_signals_after_uvicorn(), suppress(KeyboardInterrupt):
        asyncio.run(server.serve(sockets=[opened]))
    if not server.started:
        raise TTCError("the server could not start; the lines above say why")


def make_server(app: ASGIApp, settings: ServeSettings, on_start: Callable[[], None] = lambda: None) -> uvicorn.Server:
    """Return the uvicorn server of an application; ``should_exit`` stops it from another thread.

    Args:
        app: The application.
        settings: The limits.
        on_start: Called when the server accepts requests.
    """
    config = uvicorn.Config(
        app,
        lifespan="on",
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        limit_concurrency=4 * settings.max_requests + 16,  # connections, those that are idle included
        timeout_keep_alive=30,
        timeout_graceful_shutdown=round(settings.timeout) + 5,
    )
    return _Server(config, on_start)


class _Server(uvicorn.Server):
    """Tells when it accepts requests."""

    def __init__(self, config: uvicorn.Config, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started:
            self._on_start()


class _ignore_signals_after_uvicorn:  # noqa: N801 - used as a function
    """Uvicorn stops at a signal and then raises it again, for a program that would not have stopped: this one has."""

    def __enter__(self) -> None:
        self._before: Any = None
        with suppress(ValueError):  # not the main thread: uvicorn sets no handlers either
            self._before = signal.signal(signal.SIGTERM, lambda number, frame: None)

    def __exit__(self, *exception: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)
