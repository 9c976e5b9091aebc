"""Ports, and a real process that is stopped by a signal."""

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


def test_a_port_in_use_is_an_error_before_the_model_is_loaded() -> None:
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(TTCError, match=rf"cannot listen on port {port} of 127.0.0.1 .*choose another with --port"):
            bind("127.0.0.1", port)


def test_a_host_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(TTCError, match=r"cannot listen on port 0 of no\.such.host.invalid"):
        bind("no.such.host.invalid", 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_saves_every_stream_and_ends_without_an_error(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ttc", "serve", "embedded", "--port", "0", "--state", str(tmp_path / "s")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([*command, "--threads", "1"], env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        url = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert url, line
        reply = Client(url[0]).send("/streams/camera-7/predict", in_json(png(0), png(1)), "application/json")
        assert reply.status == 200
        process.send_signal(number)
        assert process.wait(60) == 0
        assert process.stderr.read() == f"stopped: every stream is saved in {tmp_path / 's'}\n"
    finally:
        process.kill()
        process.communicate()
    saved = json.loads((tmp_path / "s" / "streams" / "camera-7" / "stream.json").read_text())
    assert saved["images"] == 2
