import re
from collections import Counter

from tests.serve.conftest import Start, in_json, png
from ttc.serve.server_metrics import ServerMetrics


def test_a_histogram_is_cumulative() -> None:
    metrics = ServerMetrics()
    for seconds in (0.001, 0.02, 0.02, 100.0):
        metrics.observe(seconds)
    counts = [int(line.split()[1]) for line in metrics.text([], {}).splitlines() if "_bucket" in line]
    assert (counts[0], counts[2], counts[-2], counts[-1]) == (1, 3, 3, 4)
    assert "ttc_predict_seconds_count 4" in metrics.text([], {})


def test_every_metric_has_one_type_and_valid_samples(start: Start) -> None:
    with start() as client:
        for name in ("a", "b"):
            client.send(f"/streams/{name}/predict", in_json(png(0), png(1)), "application/json")
        reply = client.send("/metrics")
        assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    lines = reply.body.splitlines()
    types = Counter(line.split()[2] for line in lines if line.startswith("# TYPE"))
    assert set(types.values()) == {1}
    sample = re.compile(r'([a-z_]+)(\{[a-z]+="[^"]*"\})? (-?[\d.e+-]+|NaN|[+-]Inf)')
    for line in lines:
        if not line.startswith("#"):
            found = sample.fullmatch(line)
            assert found, line
            assert re.sub(r"_(bucket|sum|count)$", "", found[1]) in types or found[1] in types
    assert 'ttc_stream_images{stream="a"} 2' in lines
    assert 'ttc_stream_adapting{stream="b"} 0' in lines  # the source model predicts until it is overtaken
    assert "ttc_images_total 4" in lines
