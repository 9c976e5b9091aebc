"""A real HTTP server on this machine that misbehaves on request."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


@dataclass
class Server:
    """Serves ``content`` under every path; the first word of the path says how."""

    content: dict[str, bytes] = field(default_factory=dict)
    etag: str = '"one"'
    requests: list[tuple[str, str | None]] = field(default_factory=list)  # path, Range
    address: str = ""
    sent: int = 0  # bytes of an endless response

    def url(self, how: str, name: str) -> str:
        return f"{self.address}/{how}/{name}"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            _, how, name = self.path.partition("?")[0].split("/")
            wanted = self.headers.get("Range")
            seen = sum(path == self.path for path, _ in state.requests)
            state.requests.append((self.path, wanted))
            if how == "404":
                return self.send_error(404)
            if how == "busy" and seen == 0:
                return self.send_error(503)
            if how in ("html", "disguised"):
                return self.answer(
                    200, b"<!DOCTYPE html><p>quota</p>", "text/html" if how == "html" else "application/x"
                )
            if how == "ftp":
                self.send_response(302)
                self.send_header("Location", "ftp://127.0.0.1/f")
                return self.end_headers()
            body = state.content[name]
            if how in ("endless", "longer", "badlength"):
                return self.without_length(how, body)
            if how == "other":
                body = body[::-1]
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and how != "norange" else 0
            if self.headers.get("If-Range", state.etag) != state.etag:
                start = 0
            if start and start >= len(body):
                return self.send_error(416)
            cut = None
            if how == "cut" or (how == "cutonce" and seen == 0):
                cut = start + max(1, len(body) // 3)
            where = f"bytes {start}-{len(body) - 1}/{len(body)}" if start else None
            if how == "wrongplace" and start:
                where = f"bytes 0-{len(body) - 1}/{len(body)}"
            return self.answer(206 if start else 200, body[start:], "application/octet-stream", where, body[start:cut])

        def without_length(self, how: str, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream")
            if how == "badlength":
                self.send_header("Content-Length", "abc")
            self.end_headers()
            with suppress(OSError):  # the client hangs up
                self.wfile.write(body)
                while how == "endless":
                    self.wfile.write(body)
                    state.sent += len(body)
                if how == "longer":
                    self.wfile.write(b"more")

        def answer(
            self, status: int, body: bytes, kind: str, where: str | None = None, sent: bytes | None = None
        ) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", state.etag)
            if where:
                self.send_header("Content-Range", where)
            self.end_headers()
            self.wfile.write(body if sent is None else sent)

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.address = f"http://127.0.0.1:{running.server_address[1]}"
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    running.shutdown()
    thread.join()
    running.server_close()
