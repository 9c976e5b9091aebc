"""Errors of connecting to a cluster; tests/bench/test_ray_executor.py has those connections that succeed."""

import http.server
import sys
import threading
import time
from pathlib import Path

import pytest

from ttc.bench import ray_connection
from ttc.bench.ray_connection import connect
from ttc.errors import TTCError

pytest.importorskip("ray")


def test_an_address_without_a_cluster_is_an_error_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TTCError, match=r"no Ray cluster can be reached at 127.0.0.1:1 \(Connection refused\); check"):
        connect("127.0.0.1:1")
    with pytest.raises(TTCError, match="the address of a Ray cluster is host:port or auto, got 'head'"):
        connect("head")
    with pytest.raises(TTCError, match="run ttc on a node of the cluster"):
        connect("ray://head:10001")
    monkeypatch.setattr(ray_connection, "CONNECT_SECONDS", 4.0)
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    started = time.monotonic()
    with pytest.raises(TTCError, match=r"no Ray cluster responds at 127.0.0.1:.* within 4 seconds; check --address"):
        connect(f"127.0.0.1:{server.server_port}")
    server.shutdown()
    server.server_close()
    assert time.monotonic() - started < 60


def test_without_ray_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr(ray_connection, "find_spec", lambda name: None)
    with pytest.raises(TTCError, match=r"needs Ray, which is not installed: pip install 'ray>=2\.\d+'"):
        ray_connection.require_ray()
    project = Path(__file__).parents[2] / "pyproject.toml"
    assert f'ray = ["{ray_connection.REQUIREMENT}"]' in project.read_text()
