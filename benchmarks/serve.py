"""Requests per second and latency of ``ttc serve``, adapting and not adapting, taking turns in one run.

Three servers run at once in processes of their own and only one is asked at a time, in an order that changes with the
round: the source model, TTC without and with its guard. Only this machine is ever asked.
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
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import cycle

from PIL import Image

from ttc.corruptions import corrupt
from ttc.data import embedded

SERVERS = {
    "source": ["--method", "source", "--no-guard"],
    "ttc": ["--method", "ttc", "--no-guard"],
    "ttc, guarded": ["--method", "ttc"],
}
IMAGES = 200


def files() -> list[bytes]:
    """Corrupted images of the package as PNG files: clean ones would need no adaptation."""
    found = []
    for pixels in corrupt(embedded().pixels(range(IMAGES)), "contrast", severity=5):
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        found.append(file.getvalue())
    return found


@contextmanager
def server(options: list[str], folder: str) -> Iterator[int]:
    """Start ``ttc serve`` on a free port of this machine; yield the port."""
    words = ["-m", "ttc", "serve", "embedded", "--port", "0", "--state", folder, "--threads", "1", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, *words], env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        port = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert port, line + process.stderr.read()
        yield int(port[1])
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=160, help="requests per server and round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=8, help="requests at once")
    options = parser.parse_args()
    bodies = files()
    rates: dict[str, list[float]] = {name: [] for name in SERVERS}
    latencies: dict[str, list[float]] = {name: [] for name in SERVERS}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        ports = {
            name: stack.enter_context(server(words, f"{folder}/{place}"))
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
    print(json.dumps(report(rates, latencies, vars(options))))


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
