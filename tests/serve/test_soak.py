"""A long life: tens of thousands of requests from several clients, nothing lost, memory flat.

``TTC_SOAK_REQUESTS`` sets their number and ``TTC_SOAK_MODEL`` the model, by default a network of two convolutions: the
server is what is tested; 5,000 requests to ``embedded`` take minutes, 50,000 an hour.
"""

import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.conftest import SIDE, SmallNet, labelled_images, train_small_net
from tests.serve.conftest import encode, png

ROOT = Path(__file__).parents[2]

REQUESTS = int(os.environ.get("TTC_SOAK_REQUESTS", "50000"))
SMALL = "tests.serve.test_soak:small_model"
MODEL = os.environ.get("TTC_SOAK_MODEL", SMALL)
CLIENTS = 8
CAMERAS = 3
VISITOR_EVERY = 200  # requests between two to a stream that is rarely used, so that others go to disk and back
SAMPLES = 20


class Soak:
    """Clients that share one count of requests."""

    def __init__(self, port: int, pid: int) -> None:
        self.port, self.pid = port, pid
        self.images = [encode_image(index) for index in range(100)]
        self.numbers: Iterator[int] = iter(range(REQUESTS))
        self.lock = threading.Lock()
        self.statuses: Counter[int] = Counter()
        self.streams: Counter[str] = Counter()
        self.memory: list[float] = []
        self.failures: list[BaseException] = []

    def client(self) -> None:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
            while (number := self.next()) is not None:
                self.send(connection, number)
            connection.close()
        except BaseException as error:
            self.failures.append(error)
            raise

    def next(self) -> int | None:
        with self.lock:
            number = next(self.numbers, None)
            if number is not None and number % (REQUESTS // SAMPLES) == 0:
                self.memory.append(resident(self.pid))
            return number

    def send(self, connection: http.client.HTTPConnection, number: int) -> None:
        """Send one request, again while the server is busy, and check what came back."""
        visitor = number % VISITOR_EVERY == 0
        name = f"visitor-{number // VISITOR_EVERY % 5}" if visitor else f"camera-{number % CAMERAS}"
        while True:
            connection.request(
                "POST", f"/streams/{name}/predict", self.images[number % 100], {"Content-Type": "image/png"}
            )
            reply = connection.getresponse()
            body = json.loads(reply.read())
            with self.lock:
                self.statuses[reply.status] += 1
            if reply.status != 429:
                break
            time.sleep(0.05)
        assert reply.status == 200, body
        assert body["stream"] == name
        assert len(body["predictions"]) == 1
        with self.lock:
            self.streams[name] += 1


def small_model() -> SmallNet:
    """A trained classifier of four patterns."""
    return train_small_net().eval()


def encode_image(index: int) -> bytes:
    """An image that the model knows, as a PNG file."""
    if MODEL != SMALL:
        return png(index)
    images, _ = labelled_images(100, 0.8, seed=2)
    return encode((images[index] * 255).to(torch.uint8).permute(1, 2, 0).numpy())


def resident(pid: int) -> float:
    """The resident memory of a process, in MB."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) / 1024


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_nothing_is_lost_and_memory_is_flat(tmp_path: Path) -> None:
    options = ["--max-streams", str(CAMERAS + 1), "--save-every", "500", "--threads", "1", "--max-wait", "0.005"]
    command = [sys.executable, "-m", "ttc", "serve", MODEL, "--port", "0", "--state", str(tmp_path)]
    if MODEL == SMALL:
        options += ["--size", str(SIDE)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([*command, *options], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        port = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert port, line
        soak, start = Soak(int(port[1]), process.pid), time.monotonic()
        threads = [threading.Thread(target=soak.client) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        soak.memory.append(resident(process.pid))
        seconds = time.monotonic() - start
        process.terminate()
        rest = process.stderr.read()
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.communicate()
    print(
        json.dumps(
            {
                "model": MODEL,
                "requests": REQUESTS,
                "seconds": round(seconds),
                "statuses": soak.statuses,
                "MB": soak.memory,
            }
        )
    )
    assert soak.failures == []
    assert soak.statuses[200] == REQUESTS
    assert set(soak.statuses) <= {200, 429}
    assert rest.startswith("stopped: every stream is saved")
    saved = {path.parent.name: json.loads(path.read_text())["images"] for path in tmp_path.rglob("stream.json")}
    saved.pop("default", None)
    assert saved == soak.streams  # every image of every stream was learned from and saved, through every eviction
    middle, last = soak.memory[len(soak.memory) // 2], soak.memory[-1]
    assert last < 1.02 * middle, soak.memory  # a leak of one adapter per eviction was 6 % of the second half
