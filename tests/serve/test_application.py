"""The endpoints, on a real server."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor

import ttc
from tests.conftest import SIDE
from tests.serve.conftest import Client, Reply, Start, encode, in_json, png, running
from ttc.core import Adapter
from ttc.data import as_tensor, embedded
from ttc.deploy import Guard
from ttc.serve.serve_settings import ServeSettings
from ttc.serve.served_model import ServedModel

JSON = "application/json"


class GatedModel(ServedModel):
    """Predicts only when the gate is open."""

    def __init__(self) -> None:
        super().__init__(ServeSettings("embedded", method="source", guard=False))
        self.gate, self.entered = threading.Event(), threading.Event()

    def new_predictor(self) -> Guard | Adapter:
        adapter = super().new_predictor()
        assert isinstance(adapter, Adapter)
        adapt = adapter.adapt

        def wait_and_adapt(x: Tensor) -> Tensor:
            self.entered.set()
            assert self.gate.wait(30)
            return adapt(x)

        adapter.adapt = wait_and_adapt  # type: ignore[method-assign]
        return adapter


@pytest.fixture(scope="module")
def shared(served_model: ServedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    settings = ServeSettings("embedded", state=str(tmp_path_factory.mktemp("state")), max_body=1 << 20)
    with running(settings, served_model) as client:
        yield client


def test_predictions_are_those_of_the_library(start: Start) -> None:
    guard = Guard(ttc.adapt(ttc.models.embedded(), "ttc", small_batches=True))
    with start() as client:
        for index in range(3):
            reply = client.send("/predict?top=3", png(index))
            assert reply.status == 200
            expected = guard(as_tensor(embedded().pixels([index]))).softmax(1)[0]
            (prediction,) = reply.body["predictions"]
            assert prediction["class"] == int(expected.argmax())
            assert prediction["probability"] == pytest.approx(float(expected.max()), abs=1e-4)
            assert [entry["class"] for entry in prediction["top"]] == expected.topk(3).indices.tolist()
            assert (reply.body["stream"], reply.body["mode"]) == ("default", guard.mode)


def test_a_batch_in_json_and_a_jpeg(start: Start) -> None:
    named = ServedModel(ServeSettings("embedded", class_names=tuple("abcdefghij")))
    with start(named) as client:
        reply = client.send("/streams/camera-7/predict", in_json(png(0), png(1), png(2)), JSON)
        assert [len(prediction["top"]) for prediction in reply.body["predictions"]] == [5, 5, 5]
        photo = torch.randint(0, 256, (60, 80, 3), dtype=torch.uint8).numpy()
        reply = client.send("/streams/camera-7/predict", encode(photo, "JPEG"), "image/jpeg")
        assert reply.body["predictions"][0]["name"] in "abcdefghij"
        status = client.send("/streams").body
        found = {stream["name"]: stream["images"] for stream in status["streams"]}
        assert found == {"camera-7": 4, "default": 0}


def test_concurrent_requests_share_micro_batches_and_lose_nothing(start: Start) -> None:
    with start(max_wait=0.05, max_requests=64) as client, ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda i: client.send("/predict", png(i % 50)), range(96)))
        assert Counter(reply.status for reply in replies) == {200: 96}
        stats = client.send("/streams").body["streams"][0]["stats"]
        assert stats["images"] == 96
        assert stats["calls"] < 96  # several images per call


def test_streams_are_independent_and_the_oldest_goes_to_disk_and_back(start: Start, tmp_path: Path) -> None:
    with start(max_streams=2) as client:
        for name in ("a", "b", "c", "a"):
            assert client.send(f"/streams/{name}/predict", in_json(*map(png, range(8))), JSON).status == 200
        live = {stream["name"]: stream for stream in client.send("/streams").body["streams"]}
        assert sorted(live) == ["a", "c"]
        assert live["a"]["images"] == live["a"]["stats"]["images"] == 16  # restored, with its guard
        assert "ttc_streams_evicted 3" in client.send("/metrics").body
    saved = {path.parent.name: json.loads(path.read_text())["images"] for path in tmp_path.rglob("stream.json")}
    assert saved == {"a": 16, "b": 8, "c": 8}


def test_a_restarted_server_resumes_as_if_never_stopped(start: Start, tmp_path: Path) -> None:
    model = ServedModel(ServeSettings("tests.serve.test_soak:small_model", method="tent", size=SIDE))
    batches = [in_json(*map(png, range(first, first + 56))) for first in range(0, 224, 56)]  # a step after 200
    options = {"method": "tent", "batch_size": 56}
    with start(model, state=str(tmp_path / "other"), **options) as client:
        expected = [client.send("/predict", batch, JSON).body for batch in batches]
    found = []
    for part in (batches[:2], batches[2:]):
        with start(model, **options) as client:
            found += [client.send("/predict", batch, JSON).body for batch in part]
    assert found == expected


def test_adaptation_is_saved_every_n_images(start: Start, tmp_path: Path) -> None:
    with start(save_every=10) as client:
        client.send("/predict", in_json(*map(png, range(12))), JSON)
        folder = tmp_path / "state" / "streams" / "default"
        assert json.loads((folder / "stream.json").read_text())["images"] == 12
        assert {path.name for path in folder.iterdir()} == {"stream.json", "adaptation-12.safetensors", "guard-12.pt"}


def test_a_disk_that_cannot_be_written_loses_no_prediction(start: Start, tmp_path: Path) -> None:
    with start(save_every=1) as client:
        (tmp_path / "state" / "streams" / "default").write_text("in the way")
        assert client.send("/predict", png()).status == 200
        assert client.send("/streams").body["streams"][0]["failed_saves"] == 1
        (tmp_path / "state" / "streams" / "default").unlink()


@pytest.mark.parametrize(
    ("path", "body", "kind", "status", "words"),
    [
        ("/predict", b"no image", "image/png", 400, "image 0 is not a JPEG or PNG image"),
        ("/predict", png()[:200], "image/png", 400, "damaged"),
        ("/predict", b"", "image/png", 400, "not a JPEG or PNG"),
        ("/predict", b"{", JSON, 400, "not valid JSON"),
        ("/predict", b'{"images": []}', JSON, 400, "at least one image"),
        ("/predict", b'{"image": "?"}', JSON, 400, "image 0 is not valid base64"),
        ("/predict", png(), "text/plain", 415, "expected Content-Type image/jpeg"),
        ("/predict?top=11", png(), "image/png", 400, "top is a number from 1 to 10, got '11'"),
        ("/predict?top=x", png(), "image/png", 400, "top is a number"),
        ("/streams/..%2F..%2Fetc/predict", png(), "image/png", 400, "got '../../etc'"),
        ("/streams/a/../b/predict", png(), "image/png", 400, "a stream name has 1 to 64 characters"),
        ("/streams/%00/predict", png(), "image/png", 400, "a stream name"),
        ("/streams/UPPER/predict", png(), "image/png", 400, "a stream name"),
        (f"/streams/{'a' * 65}/predict", png(), "image/png", 400, "a stream name"),
        ("/elsewhere", png(), "image/png", 404, "predictions are at POST /predict"),
        ("/metrics", png(), "image/png", 405, "another method"),
        ("/predict", in_json(*[png()] * 65), JSON, 413, "at most 64 images, got 65"),
        ("/predict", b"x" * (1 << 21), "image/png", 413, "at most 1,048,576 bytes"),
    ],
)
def test_bad_input_is_a_sentence_and_changes_nothing(
    shared: Client, path: str, body: bytes, kind: str, status: int, words: str
) -> None:
    reply = shared.send(path, body, kind)
    assert reply.status == status
    assert words in reply.body["error"]
    assert "Traceback" not in str(reply.body)
    streams = shared.send("/streams").body["streams"]
    assert [(stream["name"], stream["images"]) for stream in streams] == [("default", 0)]


def test_a_full_queue_is_429_and_what_was_accepted_is_predicted(start: Start) -> None:
    model = GatedModel()
    options = {"method": "source", "guard": False, "max_queued": 4}
    with start(model, **options) as client, ThreadPoolExecutor(8) as pool:
        first = pool.submit(client.send, "/predict", in_json(*[png()] * 4), JSON)
        assert model.entered.wait(10)
        reply = client.send("/predict", png())
        assert (reply.status, reply.headers["Retry-After"]) == (429, "1")
        assert client.send("/streams/other/predict", b"not an image").status == 400  # the others are served
        model.gate.set()
        assert first.result().status == 200
        assert client.send("/predict", png()).body["mode"] == "unguarded"


def test_too_many_requests_at_once_are_429(start: Start) -> None:
    model = GatedModel()
    with start(model, method="source", guard=False, max_requests=2) as client, ThreadPoolExecutor(8) as pool:
        accepted = [pool.submit(client.send, "/predict", png()) for _ in range(2)]
        assert model.entered.wait(10)
        rejected = _eventually(lambda: client.send("/predict", png()), 429)
        assert "requests are being handled" in rejected.body["error"]
        assert client.send("/healthz").status == client.send("/readyz").status == 200
        model.gate.set()
        assert [future.result().status for future in accepted] == [200, 200]


def test_busy_streams_are_not_evicted(start: Start) -> None:
    model = GatedModel()
    with start(model, method="source", guard=False, max_streams=1) as client, ThreadPoolExecutor(2) as pool:
        busy = pool.submit(client.send, "/predict", png())
        assert model.entered.wait(10)
        assert client.send("/streams/other/predict", png()).status == 429
        model.gate.set()
        assert busy.result().status == 200


def test_a_prediction_that_takes_too_long_is_504(start: Start) -> None:
    model = GatedModel()
    with start(model, method="source", guard=False, timeout=0.3) as client:
        assert client.send("/predict", png()).status == 504
        model.gate.set()
        assert _eventually(lambda: client.send("/predict", png()), 200).status == 200


def test_a_failure_of_ours_shows_nothing_to_the_client(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    class BrokenModel(ServedModel):
        def new_predictor(self) -> Guard | Adapter:
            adapter = super().new_predictor()

            def fail(x: Tensor) -> Tensor:
                raise RuntimeError("the secret reason")

            adapter.adapt = fail  # type: ignore[union-attr, method-assign]
            return adapter

    broken = BrokenModel(ServeSettings("embedded", guard=False))
    with start(broken, guard=False) as client:
        reply = client.send("/predict", png())
        assert (reply.status, reply.body) == (500, {"error": "the server failed; its log has the reason"})
    assert "the secret reason" in caplog.text


def test_a_damaged_save_is_an_error_and_is_not_overwritten(start: Start, tmp_path: Path) -> None:
    with start() as client:
        client.send("/streams/a/predict", png())
    (guard,) = (tmp_path / "state" / "streams" / "a").glob("guard-*.pt")
    guard.write_bytes(b"damaged")
    with start() as client:
        reply = client.send("/streams/a/predict", png())
        assert (reply.status, "'a' cannot be restored" in reply.body["error"]) == (409, True)
        assert str(tmp_path) not in reply.body["error"]
        assert client.send("/streams/b/predict", png()).status == 200
    assert guard.read_bytes() == b"damaged"


def test_the_number_of_streams_on_disk_is_bounded(start: Start) -> None:
    with start(max_saved=2) as client:
        assert client.send("/streams/a/predict", png()).status == 200
        assert client.send("/streams/b/predict", png()).status == 507


def _eventually(request: Callable[[], Reply], status: int) -> Reply:
    for _ in range(200):
        reply = request()
        if reply.status == status:
            return reply
        time.sleep(0.02)
    raise AssertionError(f"no reply had status {status}")
