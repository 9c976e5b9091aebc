"""Requests per second and latency of ``ttc serve``, adapting and not adapting, taking turns in one run.

Three servers run at once in processes of their own and only one is asked at a time, in an order that changes with the
round: the source model, TTC without and with its guard. Only this machine is ever asked.

``--soak N`` instead sends N requests to the guarded server, prints replies and memory at every tenth, and ends with
exit code 1 if one was lost: without a reply of status 200 in time, or not counted in what the server saved.
"""

import argparse
import http.client
import io
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path

from PIL import Image

from ttc.corruptions import corrupt
from ttc.data import embedded

SERVERS = {
    "source": ["--method", "source", "--no-guard"],
    "ttc": ["--method", "ttc", "--no-guard"],
    "ttc, guarded": ["--method", "ttc"],
}
IMAGES = 200
REPLY_SECONDS = 60.0  # that a client waits for a reply


def files() -> list[bytes]:
    """Corrupted images of the package as PNG files: clean ones would need no adaptation."""
    found = []
    for pixels in corrupt(embedded().pixels(range(IMAGES)), "contrast", severity=5):
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        found.append(file.getvalue())
    return found


@contextmanager
def server(options: list[str], folder: str) -> Iterator[tuple[int, int]]:
    """Start ``ttc serve`` on a free port of this machine; yield the port and the process id."""
    words = ["-m", "ttc", "serve", "embedded", "--port", "0", "--state", folder, "--threads", "1", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, *words], env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        port = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert port, line + process.stderr.read()
        yield int(port[1]), process.pid
    finally:
        process.terminate()
        process.communicate()


def ask(port: int, bodies: list[bytes], count: int, clients: int) -> tuple[float, list[float]]:
    """Send requests of one image from clients that each wait for their response; return the seconds of all and each."""

    def client(number: int) -> list[float]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        taken = []
        for _, body in zip(range(count // clients), cycle(bodies[number::clients]), strict=False):
            start = time.perf_counter()
            connection.request("POST", "/predict", body, {"Content-Type": "image/png"})
            reply = connection.getresponse()
            content = reply.read()
            assert reply.status == 200, content
            taken.append(time.perf_counter() - start)
        connection.close()
        return taken

    start = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        each = [seconds for part in pool.map(client, range(clients)) for seconds in part]
    return time.perf_counter() - start, each


class Soak:
    """Clients that share a number of requests over a few streams.

    Args:
        port: The port of the server.
        pid: Its process id.
        count: The number of requests.
        streams: The number of streams.
        end: When, by the monotonic clock, a request that has no reply is lost.
    """

    def __init__(self, port: int, pid: int, count: int, streams: int, end: float) -> None:
        self.port, self.pid, self.count, self.streams, self.end = port, pid, count, streams, end
        self.bodies, self.numbers, self.start = files(), iter(range(count)), time.monotonic()
        self.lock = threading.Lock()
        self.statuses: Counter[str] = Counter()  # of all replies; "no reply" where the connection failed
        self.replied: Counter[str] = Counter()  # with a prediction, by stream

    def client(self) -> None:
        """Send requests, each again while the server is busy, until there are none left or the time is over."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REPLY_SECONDS)
        while (number := self._next()) is not None:
            name = f"camera-{number % self.streams}"
            while (status := self._send(connection, name, self.bodies[number % IMAGES])) == "429":
                time.sleep(0.02)
            if status == "200":
                self._count(name)
        connection.close()

    def _next(self) -> int | None:
        with self.lock:
            return next(self.numbers, None) if time.monotonic() < self.end else None

    def _send(self, connection: http.client.HTTPConnection, name: str, body: bytes) -> str:
        try:
            connection.request("POST", f"/streams/{name}/predict", body, {"Content-Type": "image/png"})
            reply = connection.getresponse()
            content, status = reply.read(), str(reply.status)
            if reply.status == 200:
                found = json.loads(content)
                status = "200" if found["stream"] == name and len(found["predictions"]) == 1 else "wrong reply"
        except (OSError, http.client.HTTPException):
            connection.close()
            status = "no reply"
        with self.lock:
            self.statuses[status] += 1
        return status if time.monotonic() < self.end or status != "429" else "too late"

    def _count(self, name: str) -> None:
        with self.lock:
            self.replied[name] += 1
            done = self.replied.total()
            if done * 10 // self.count > (done - 1) * 10 // self.count:
                print(json.dumps(self.progress()), flush=True)

    def progress(self) -> dict[str, object]:
        """Return what came back so far, and the memory of the server."""
        done, seconds = self.replied.total(), time.monotonic() - self.start
        return {
            "replies": done,
            "statuses": dict(self.statuses),
            "MB": resident(self.pid),
            "requests per second": round(done / seconds, 1),
        }


def resident(pid: int) -> float | None:
    """The resident memory of a process in MB; None where there is no /proc."""
    path = Path(f"/proc/{pid}/status")
    found = re.search(r"VmRSS:\s+(\d+) kB", path.read_text()) if path.exists() else None
    return round(int(found[1]) / 1024, 1) if found else None


def images_per_call(port: int) -> dict[str, float]:
    """Ask the server how many images its micro-batches had, by stream."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/streams", timeout=REPLY_SECONDS) as reply:
        streams = json.load(reply)["streams"]
    return {one["name"]: round(one["stats"]["images"] / max(1, one["stats"]["calls"]), 1) for one in streams}


def soak(count: int, concurrency: int, streams: int, seconds: float) -> None:
    """Send requests to the guarded server from clients that each wait for their reply, and count what comes back."""
    limits = ["--batch-size", str(concurrency), "--max-requests", str(concurrency), "--max-streams", str(streams)]
    with tempfile.TemporaryDirectory() as folder:
        with server([*SERVERS["ttc, guarded"], *limits], folder) as (port, pid):
            work = Soak(port, pid, count, streams, time.monotonic() + seconds)
            with ThreadPoolExecutor(concurrency) as pool:
                for ended in [pool.submit(work.client) for _ in range(concurrency)]:
                    ended.result()
            summary = {**work.progress(), "images per call": images_per_call(port)}
        saved = {path.parent.name: json.loads(path.read_text())["images"] for path in Path(folder).rglob("stream.json")}
    lost = count - work.replied.total()
    unsaved = {name: one - saved.get(name, 0) for name, one in work.replied.items() if saved.get(name, 0) != one}
    print(json.dumps({**summary, "requests": count, "concurrency": concurrency, "lost": lost, "unsaved": unsaved}))
    if lost or unsaved:
        sys.exit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=160, help="requests per server and round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=8, help="requests at once")
    parser.add_argument("--soak", type=int, metavar="N", help="send N requests to the guarded server instead")
    parser.add_argument("--concurrency", type=int, default=64, help="with --soak: requests at once")
    parser.add_argument("--streams", type=int, default=3, help="with --soak: named streams")
    parser.add_argument("--seconds", type=float, default=7200, help="with --soak: until a request is lost")
    options = parser.parse_args()
    if options.soak:
        soak(options.soak, options.concurrency, options.streams, options.seconds)
        return
    bodies = files()
    rates: dict[str, list[float]] = {name: [] for name in SERVERS}
    latencies: dict[str, list[float]] = {name: [] for name in SERVERS}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        ports = {
            name: stack.enter_context(server(words, f"{folder}/{place}"))[0]
            for place, (name, words) in enumerate(SERVERS.items())
        }
        for port in ports.values():
            ask(port, bodies, options.clients * 4, options.clients)  # the first batches set things up
        for turn in range(options.rounds):
            names = list(SERVERS)
            for name in names[turn % 3 :] + names[: turn % 3]:
                total, each = ask(ports[name], bodies, options.requests, options.clients)
                rates[name].append(len(each) / total)
                latencies[name] += each
    chosen = {name: vars(options)[name] for name in ("requests", "rounds", "clients")}
    print(json.dumps(report(rates, latencies, chosen)))


def report(
    rates: dict[str, list[float]], latencies: dict[str, list[float]], options: dict[str, int]
) -> dict[str, object]:
    found: dict[str, object] = {}
    for name in SERVERS:
        cuts = statistics.quantiles(latencies[name], n=100)
        slower = statistics.median(base / own for base, own in zip(rates["source"], rates[name], strict=True))
        found[name] = {
            "requests per second": round(statistics.median(rates[name]), 1),
            "p50 ms": round(1000 * cuts[49], 1),
            "p99 ms": round(1000 * cuts[98], 1),
            "requests per second of source over its own": round(slower, 2),
        }
    counts = Counter({name: len(each) for name, each in latencies.items()})
    return {"servers": found, "requests each": counts["source"], **options, "processors": os.cpu_count()}


if __name__ == "__main__":
    main()
