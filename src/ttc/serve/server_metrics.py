"""What ``/metrics`` shows, in the text format of Prometheus."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping

from ttc.deploy import prometheus_text
from ttc.serve.served_stream import ServedStream

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds


class ServerMetrics:
    """Counts requests by status and measures how long predictions took.

    Example:
        >>> metrics = ServerMetrics()
        >>> metrics.count(200)
        >>> metrics.observe(0.03)
        >>> "ttc_http_requests_total{status=\\"200\\"} 1" in metrics.text([], {})
        True
    """

    def __init__(self) -> None:
        self.requests: Counter[int] = Counter()
        self.images = 0
        self._buckets = [0] * (len(BUCKETS) + 1)
        self._seconds = 0.0

    def count(self, status: int) -> None:
        """Count a response."""
        self.requests[status] += 1

    def observe(self, seconds: float) -> None:
        """Include the duration of a prediction."""
        self._buckets[bisect_left(BUCKETS, seconds)] += 1
        self._seconds += seconds

    def text(self, streams: Iterable[ServedStream], gauges: Mapping[str, float]) -> str:
        """Return the metrics of the server, and of the streams in memory with the label ``stream``.

        Args:
            streams: The streams in memory.
            gauges: Numbers of the server, by name.
        """
        lines = ["# TYPE ttc_http_requests_total counter"]
        lines += [f'ttc_http_requests_total{{status="{code}"}} {n}' for code, n in sorted(self.requests.items())]
        lines += ["# TYPE ttc_images_total counter", f"ttc_images_total {self.images}", *self._histogram()]
        return "\n".join(lines) + "\n" + prometheus_text(gauges) + _stream_text(streams)

    def _histogram(self) -> list[str]:
        name, total, lines = "ttc_predict_seconds", 0, []
        for bound, count in zip((*BUCKETS, "+Inf"), self._buckets, strict=True):
            total += count
            lines.append(f'{name}_bucket{{le="{bound}"}} {total}')
        return [f"# TYPE {name} histogram", *lines, f"{name}_sum {self._seconds:g}", f"{name}_count {total}"]


def _stream_text(streams: Iterable[ServedStream]) -> str:
    """Group samples by metric: Prometheus reads one TYPE line per name."""
    samples: dict[str, list[str]] = {}
    for stream in streams:
        own = {"waiting": stream.waiting, "saved_images": stream.saved_images, "failed_saves": stream.failed_saves}
        values = {**stream.stats, "images": stream.images, **own}
        for name, value in values.items():
            kind, sample = prometheus_text(
                {name: value}, prefix="ttc_stream_", labels={"stream": stream.name}
            ).splitlines()
            samples.setdefault(kind, []).append(sample)
    return "".join(f"{kind}\n{chr(10).join(lines)}\n" for kind, lines in samples.items())
