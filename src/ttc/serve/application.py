"""The web application, the same under uvicorn and on Ray Serve."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp
from torch import Tensor

from ttc import __version__
from ttc.errors import TTCError
from ttc.serve.gateway import Gateway, error_response, read_body
from ttc.serve.request_images import RequestError, read_images
from ttc.serve.serve_settings import ServeSettings, valid_stream_name
from ttc.serve.served_model import ServedModel
from ttc.serve.served_stream import ServedStream, log
from ttc.serve.server_metrics import ServerMetrics
from ttc.serve.stream_folder import StateFolder
from ttc.serve.stream_table import StreamTable

DEFAULT_STREAM = "default"
DECODERS = 2  # threads: they bound the memory that decoding takes
TOP = 5
PAGE_FILES = {"/": ("status.html", "text/html"), "/status.js": ("status.js", "text/javascript"),
              "/status.css": ("status.css", "text/css")}  # fmt: skip
Result = TypeVar("Result")


class Server:
    """The state behind the endpoints.

    Args:
        settings: What is served, and the limits.
        model: The model, if it is built already.

    Raises:
        TTCError: If the model cannot be built, or the folder cannot be used.
    """

    def __init__(self, settings: ServeSettings, model: ServedModel | None = None) -> None:
        self.settings = settings
        self.model = model or ServedModel(settings)
        self.folder = StateFolder(Path(settings.state), settings.identity)
        self.table = StreamTable(self._open_stream, settings.max_streams)
        self.metrics = ServerMetrics()
        self.decoders = ThreadPoolExecutor(DECODERS, thread_name_prefix="ttc-decode")
        self.ready = False
        self.started = time.time()

    @asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[None]:
        """Open the default stream, serve, and save everything at the end."""
        async with self.table.use(DEFAULT_STREAM):
            self.ready = True
        try:
            yield
        finally:
            self.ready = False
            for problem in await self.table.close():
                log.error(problem)
            self.decoders.shutdown()
            self.folder.close()

    async def predict(self, request: Request) -> Response:
        """Handle ``POST /predict`` and ``POST /streams/NAME/predict``."""
        start = time.perf_counter()
        try:
            name = valid_stream_name(request.path_params.get("name", DEFAULT_STREAM))
        except TTCError as error:
            raise RequestError(400, str(error)) from error
        top = self._top(request)
        reading = read_body(request.receive, request.headers.raw, self.settings.max_body)
        body = await self._in_time(reading, 408, "the request did not arrive in time")
        content_type = request.headers.get("content-type", "")
        left = max(0.001, self.settings.timeout - (time.perf_counter() - start))
        predicting = self._decode_and_predict(name, body, content_type)
        late = "the prediction took too long: send more slowly"
        probabilities, mode = await self._in_time(predicting, 504, late, left)
        self.metrics.images += len(probabilities)
        self.metrics.observe(time.perf_counter() - start)
        return JSONResponse(
            {"stream": name, "mode": mode, "predictions": [self._prediction(row, top) for row in probabilities]}
        )

    async def _decode_and_predict(self, name: str, body: bytes, content_type: str) -> tuple[Tensor, str]:
        loop = asyncio.get_running_loop()
        images = await loop.run_in_executor(
            self.decoders, read_images, body, content_type, self.model.fitting, self.settings
        )
        try:
            async with self.table.use(name) as stream:
                return await self._predict(stream, images)
        except RequestError:
            raise
        except TTCError as error:
            log.error("the stream %s cannot be opened: %s", name, error)
            raise RequestError(
                409, f"the saved stream '{name}' cannot be restored; the server's log says why"
            ) from error

    async def _predict(self, stream: ServedStream, images: Tensor) -> tuple[Tensor, str]:
        try:
            return await stream.predict(images)
        except RequestError:
            raise
        except TTCError as error:
            if stream.has_failed:
                self.table.discard(stream)
                raise RequestError(503, "the stream failed and is restored: try again", retry_after=1) from error
            raise RequestError(422, f"the images were rejected: {error}") from error

    async def _in_time(
        self, work: Awaitable[Result], status: int, message: str, seconds: float | None = None
    ) -> Result:
        try:
            return await asyncio.wait_for(work, seconds or self.settings.timeout)
        except asyncio.TimeoutError as error:
            raise RequestError(status, message, retry_after=1) from error

    def _top(self, request: Request) -> int:
        text = request.query_params.get("top", str(min(TOP, self.model.num_classes)))
        if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= self.model.num_classes):
            raise RequestError(400, f"top is a number from 1 to {self.model.num_classes}, got {text[:20]!r}")
        return int(text)

    def _prediction(self, row: Tensor, top: int) -> dict[str, Any]:
        values, classes = row.topk(top)
        ranked = [
            {"class": index, "name": self.model.class_name(index), "probability": round(value, 6)}
            for index, value in zip(classes.tolist(), values.tolist(), strict=True)
        ]
        return {**ranked[0], "top": ranked}

    def _open_stream(self, name: str) -> ServedStream:
        if name not in self.folder.known:
            if len(self.folder.known) >= self.settings.max_saved:
                raise RequestError(507, f"this server has {self.settings.max_saved:,} streams and takes no more")
            self.folder.known.add(name)
        return ServedStream(name, self.model.new_predictor(), self.folder.stream(name), self.settings)

    async def streams(self, request: Request) -> Response:
        """Handle ``GET /streams``: what the status page shows."""
        settings = self.settings
        return JSONResponse(
            {
                "version": __version__,
                "model": settings.model,
                "method": settings.method,
                "guard": settings.guard,
                "classes": self.model.num_classes,
                "uptime": round(time.time() - self.started),
                "requests": sum(self.metrics.requests.values()),
                "images": self.metrics.images,
                "saved_streams": len(self.folder.known),
                "max_streams": settings.max_streams,
                "streams": [stream.status() for stream in reversed(self.table.live.values())],
            }
        )

    async def show_metrics(self, request: Request) -> Response:
        """Handle ``GET /metrics``."""
        gauges = {
            "streams": len(self.table.live),
            "saved_streams": len(self.folder.known),
            "streams_opened": self.table.opened,
            "streams_evicted": self.table.evicted,
            "ready": int(self.ready),
        }
        text = self.metrics.text(list(self.table.live.values()), gauges)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def healthz(self, request: Request) -> Response:
        """Handle ``GET /healthz``: the process responds."""
        return PlainTextResponse("ok\n")

    async def readyz(self, request: Request) -> Response:
        """Handle ``GET /readyz``: the model is loaded and the server is not stopping."""
        return PlainTextResponse("ready\n") if self.ready else PlainTextResponse("not ready\n", 503)


def _page_route(path: str) -> Route:
    name, kind = PAGE_FILES[path]
    content = (files("ttc.serve") / name).read_bytes()

    async def send(request: Request) -> Response:
        return Response(content, media_type=kind)

    return Route(path, send)


async def _explain(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        return error_response(error)
    found = {404: "there is nothing here; predictions are at POST /predict and /streams/NAME/predict",
             405: "another method is needed here: POST for predictions, GET for the rest"}  # fmt: skip
    return error_response(RequestError(error.status_code, found.get(error.status_code, "the request is invalid")))


def create_app(settings: ServeSettings, model: ServedModel | None = None) -> ASGIApp:
    """Build the ASGI application; its lifespan loads nothing more, and saves every stream at its end.

    Args:
        settings: What is served, and the limits.
        model: The model, if it is built already.

    Returns:
        The application, for any ASGI server.

    Raises:
        TTCError: If the model cannot be built, or the folder cannot be used.
    """
    server = Server(settings, model)
    routes = [
        Route("/predict", server.predict, methods=["POST"]),
        Route("/streams/{name:path}/predict", server.predict, methods=["POST"]),
        Route("/streams", server.streams),
        Route("/metrics", server.show_metrics),
        Route("/healthz", server.healthz),
        Route("/readyz", server.readyz),
        *map(_page_route, PAGE_FILES),
    ]
    handlers = dict.fromkeys((HTTPException, RequestError, Exception), _explain)
    app = Starlette(routes=routes, lifespan=server.lifespan, exception_handlers=handlers)
    return Gateway(app, settings, server.metrics)
