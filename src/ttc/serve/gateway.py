"""What every request passes: host, token, number of requests at once; and headers of every response."""

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ttc.serve.request_images import RequestError
from ttc.serve.serve_settings import ServeSettings
from ttc.serve.server_metrics import ServerMetrics

log = logging.getLogger("ttc.serve")
DISCARD_SECONDS = 2.0
OPEN_PATHS = ("/healthz", "/readyz", "/", "/status.js", "/status.css")  # no data: the page asks for the token
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
     b"img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
)  # fmt: skip


class Gateway:
    """Rejects requests before their body is read, and turns errors into sentences.

    Args:
        app: The application behind it.
        settings: Token, hosts and limits.
        metrics: Where responses are counted.
    """

    def __init__(self, app: ASGIApp, settings: ServeSettings, metrics: ServerMetrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self.requests = 0  # at the moment, of those that have a body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request; the life of the server is the application's own affair."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        sent: list[int] = []

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent.append(message["status"])
                message = {**message, "headers": [*message.get("headers", ()), *HEADERS]}
            await send(message)

        try:
            await self._handle(scope, receive, send_with_headers)
        except ClientDisconnect:
            sent.append(499)  # nobody is left to read a response
        except Exception as error:
            if not isinstance(error, RequestError):
                log.exception("a request failed")
            if not sent:
                await error_response(error)(scope, receive, send_with_headers)
        self.metrics.count(sent[0] if sent else 499)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.lower(): value for name, value in scope["headers"]}
        self._check_host(headers.get(b"host", b""))
        path = scope["path"].removeprefix(scope.get("root_path", "")) or "/"
        if path not in OPEN_PATHS and not self._is_authorized(headers.get(b"authorization", b"")):
            raise RequestError(401, "expected the header 'Authorization: Bearer TOKEN' with the token of this server")
        if scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        if self.requests >= self.settings.max_requests:
            await discard_body(receive, self.settings.max_body)
            raise RequestError(429, f"{self.requests} requests are being handled: try again later", retry_after=1)
        self.requests += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.requests -= 1

    def _check_host(self, host: bytes) -> None:
        """Reject other names of this machine: a web page must not reach a server without a token by renaming it."""
        if not self.settings.hosts:
            return
        name = host.decode("latin-1").rpartition("]")[0].lstrip("[") or host.decode("latin-1").partition(":")[0]
        if name not in self.settings.hosts:
            raise RequestError(421, f"this server has no token and is only for {', '.join(self.settings.hosts)}")

    def _is_authorized(self, header: bytes) -> bool:
        if not self.settings.token_digest:
            return True
        scheme, _, token = header.partition(b" ")
        digest = hashlib.sha256(token.strip()).hexdigest()
        return hmac.compare_digest(digest, self.settings.token_digest) and scheme.lower() == b"bearer"


def error_response(error: Exception) -> JSONResponse:
    """Return the response to an error: a sentence for the client's mistakes, and nothing about our own."""
    status = error.status if isinstance(error, RequestError) else 500
    message = str(error) if isinstance(error, RequestError) else "the server failed; its log has the reason"
    headers: dict[str, Any] = {}
    if isinstance(error, RequestError) and error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse({"error": message}, status, headers)


async def read_body(receive: Receive, headers: Iterable[tuple[bytes, bytes]], limit: int) -> bytes:
    """Read the body of a request.

    Args:
        receive: Where its parts come from.
        headers: Its headers.
        limit: The most bytes it may have.

    Raises:
        RequestError: If it is larger.
        ClientDisconnect: If the client is gone.
    """
    length = dict(headers).get(b"content-length", b"")
    too_large = RequestError(413, f"a request has at most {limit:,} bytes")
    if length.isdigit() and int(length) > limit:
        await discard_body(receive, limit)
        raise too_large
    body = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > limit:
            if more:
                await discard_body(receive, limit)
            raise too_large
    return bytes(body)


async def discard_body(receive: Receive, limit: int) -> None:
    """Read what a client sends for a moment, up to a limit: it sees no response while it is still sending."""

    async def discard() -> None:
        left, more = limit, True
        while more and left > 0:
            message = await receive()
            left -= len(message.get("body", b""))
            more = message.get("more_body", False)

    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(discard(), DISCARD_SECONDS)
