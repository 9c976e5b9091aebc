"""Real servers on the loopback address, and a client of the standard library."""

import asyncio
import base64
import io
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

from ttc.data import embedded
from ttc.serve.application import create_app
from ttc.serve.local_server import bind, make_server
from ttc.serve.serve_settings import ServeSettings
from ttc.serve.served_model import ServedModel


class Reply(NamedTuple):
    """A response: status, headers, and the JSON or text of its body."""

    status: int
    headers: Any
    body: Any


def encode(pixels: np.ndarray[Any, Any], kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def png(index: int = 0) -> bytes:
    """An image of the embedded data, as a PNG file."""
    return encode(embedded().pixels([index])[0])


def in_json(*images: bytes) -> bytes:
    return json.dumps({"images": [base64.b64encode(image).decode() for image in images]}).encode()


class Client:
    """Sends requests to one server."""

    def __init__(self, url: str) -> None:
        self.url = url

    def send(self, path: str, body: bytes | None = None, kind: str = "image/png", **headers: str) -> Reply:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None and kind:
            named["Content-Type"] = kind
        request = urllib.request.Request(self.url + path, body, named)
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                return self._reply(reply.status, reply.headers, reply.read())
        except urllib.error.HTTPError as error:
            with error:
                return self._reply(error.code, error.headers, error.read())

    def _reply(self, status: int, headers: Any, body: bytes) -> Reply:
        is_json = headers.get("content-type", "").startswith("application/json")
        return Reply(status, headers, json.loads(body) if is_json else body.decode())


Start = Callable[..., AbstractContextManager[Client]]


@pytest.fixture(scope="session")
def served_model() -> ServedModel:
    return ServedModel(ServeSettings("embedded"))


@contextmanager
def running(settings: ServeSettings, model: ServedModel | None = None) -> Iterator[Client]:
    """A server on a free port of this machine, stopped as by a signal at the end of the block."""
    started = threading.Event()
    with bind("127.0.0.1", 0) as opened:
        server = make_server(create_app(settings, model), settings, started.set)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[opened])))
        thread.start()
        try:
            assert started.wait(60)
            yield Client(f"http://127.0.0.1:{opened.getsockname()[1]}")
        finally:
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive()


@pytest.fixture
def start(served_model: ServedModel, tmp_path: Path) -> Start:
    """Starts a server of the embedded model: ``with start(max_streams=2) as client``."""

    def start(model: ServedModel | None = None, **options: Any) -> AbstractContextManager[Client]:
        settings = ServeSettings("embedded", **{"state": str(tmp_path / "state"), "max_wait": 0.002, **options})
        return running(settings, model or served_model)

    return start
