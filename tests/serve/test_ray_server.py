"""The same application on a real Ray Serve of this machine, started and stopped as a user does."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serve.conftest import Client, in_json, png
from ttc import TTCError
from ttc.serve.local_server import bind
from ttc.serve.ray_server import serve_on_ray
from ttc.serve.serve_settings import ServeSettings

TOKEN = "a-token-of-this-test"


def free_port() -> int:
    with bind("127.0.0.1", 0) as opened:
        port: int = opened.getsockname()[1]
        return port


def test_ray_serve_needs_a_port() -> None:
    pytest.importorskip("ray.serve")
    with pytest.raises(TTCError, match="choose one with --port"):
        serve_on_ray(ServeSettings("embedded"), "127.0.0.1", 0)


@pytest.mark.slow
def test_predict_stop_and_resume_on_ray_serve(tmp_path: Path) -> None:
    pytest.importorskip("ray.serve")
    for expected in (2, 4):  # the second server resumes from the first
        port = free_port()
        words = ["serve", "embedded", "--ray", "--port", port, "--state", tmp_path / "state", "--threads", 1]
        environment = {**os.environ, "TTC_SERVE_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, "-m", "ttc", *map(str, words)], env=environment, stderr=subprocess.PIPE, text=True
        )
        try:
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            assert any(re.match("serving embedded with ttc", line) for line in lines)
            client = Client(f"http://127.0.0.1:{port}")
            assert client.send("/predict", png()).status == 401
            allowed = f"Bearer {TOKEN}"
            body = in_json(png(0), png(1))
            reply = client.send("/streams/camera-7/predict", body, "application/json", Authorization=allowed)
            mode = reply.body["mode"]  # the source model predicts until it is overtaken
            assert (reply.status, mode, len(reply.body["predictions"])) == (200, "source", 2)
            assert client.send("/streams/..%2Fa/predict", body, "application/json", Authorization=allowed).status == 400
            assert client.send("/readyz").body == "ready\n"
            assert (
                f'ttc_stream_images{{stream="camera-7"}} {expected}'
                in client.send("/metrics", Authorization=allowed).body
            )
            process.send_signal(signal.SIGTERM)
            process.stderr.read()
            assert process.wait(120) == 0
        finally:
            process.kill()
            process.communicate()
        saved = json.loads((tmp_path / "state" / "streams" / "camera-7" / "stream.json").read_text())
        assert saved["images"] == expected


@pytest.mark.parametrize("address", ["127.0.0.1:{}", "ray://127.0.0.1:{}"])
def test_a_cluster_that_is_not_there_is_one_sentence_at_once(address: str) -> None:
    pytest.importorskip("ray.serve")
    with pytest.raises(TTCError, match=r"cannot be joined \(.+\): start one with ray start --head"):
        serve_on_ray(ServeSettings("embedded"), "127.0.0.1", 8000, address.format(free_port()))


def test_a_wrong_name_or_a_port_in_use_is_found_before_ray_starts() -> None:
    pytest.importorskip("ray.serve")
    with pytest.raises(TTCError, match="unknown model 'embeded'"):
        serve_on_ray(ServeSettings("embeded"), "127.0.0.1", free_port())
    with bind("127.0.0.1", 0) as opened, pytest.raises(TTCError, match="choose another with --port"):
        serve_on_ray(ServeSettings("embedded"), "127.0.0.1", opened.getsockname()[1])


@pytest.mark.slow
def test_a_replica_that_cannot_start_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("ray.serve")
    (tmp_path / "state").write_text("not a folder")
    command = [
        sys.executable,
        "-m",
        "ttc",
        "serve",
        "embedded",
        "--ray",
        "--port",
        str(free_port()),
        "--state",
        "state",
    ]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert shown.returncode == 2
    assert "ttc: the application does not start on Ray Serve: cannot write to the folder" in shown.stderr
    assert "Traceback" not in shown.stderr
