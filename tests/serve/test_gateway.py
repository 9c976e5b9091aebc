"""Token, host, headers, and bodies that arrive slowly or not at all."""

import http.client
import socket
from urllib.parse import urlsplit

import pytest

from tests.serve.conftest import Client, Start, png
from ttc.serve.serve_settings import LOOPBACK, digest_token

TOKEN = "a-token-of-this-test"


@pytest.mark.parametrize("path", ["/predict", "/streams/a/predict", "/streams", "/metrics", "/elsewhere"])
def test_everything_with_data_needs_the_token(start: Start, path: str) -> None:
    body = png() if path.endswith("predict") else None
    with start(token_digest=digest_token(TOKEN)) as client:
        for wrong in ({}, {"Authorization": "Bearer another-token-here"}, {"Authorization": f"Basic {TOKEN}"},
                      {"Authorization": TOKEN}, {"Authorization": "Bearer"}):  # fmt: skip
            reply = client.send(path, body, **wrong)
            assert (reply.status, reply.headers["WWW-Authenticate"]) == (401, "Bearer")
            assert TOKEN not in str(reply.body)
        expected = 404 if path == "/elsewhere" else 200
        assert client.send(path, body, Authorization=f"Bearer {TOKEN}").status == expected
        for open_path in ("/healthz", "/readyz", "/", "/status.js", "/status.css"):
            assert client.send(open_path).status == 200


def test_without_a_token_another_name_of_the_machine_is_rejected(start: Start) -> None:
    with start(hosts=LOOPBACK) as client:
        assert client.send("/predict", png()).status == 200
        for host in ("localhost", "localhost:8000", "[::1]:8000"):
            assert client.send("/streams", Host=host).status == 200
        for host in ("attacker.example", "127.0.0.1.attacker.example:80", "[::2]"):
            assert client.send("/streams", Host=host).status == 421


def test_every_response_forbids_what_the_page_does_not_need(start: Start) -> None:
    with start() as client:
        for path in ("/", "/streams", "/elsewhere"):
            headers = client.send(path).headers
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert "default-src 'none'" in headers["Content-Security-Policy"]
            assert "server" not in headers


def connection(client: Client) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(client.url).netloc, timeout=20)


def test_a_body_without_a_length_is_cut_off_at_the_limit(start: Start) -> None:
    with start(max_body=1000) as client:
        sent = connection(client)
        sent.request("POST", "/predict", iter([b"x" * 600] * 2), {"Content-Type": "image/png"}, encode_chunked=True)
        reply = sent.getresponse()
        assert (reply.status, b"at most 1,000 bytes" in reply.read()) == (413, True)
        sent.close()
        assert client.send("/predict", png()[:900]).status == 400


def test_a_body_that_never_arrives_is_408(start: Start) -> None:
    with start(timeout=0.3) as client:
        sent = connection(client)
        sent.putrequest("POST", "/predict")
        sent.putheader("Content-Type", "image/png")
        sent.putheader("Content-Length", "100")
        sent.endheaders(b"half")
        reply = sent.getresponse()
        assert (reply.status, b"did not arrive in time" in reply.read()) == (408, True)
        sent.close()


def test_a_client_that_hangs_up_harms_nobody(start: Start) -> None:
    with start() as client:
        address = urlsplit(client.url)
        with socket.create_connection((address.hostname or "", address.port or 0)) as sent:
            sent.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\nContent-Length: 99\r\n\r\nx")
        assert client.send("/predict", png()).status == 200
