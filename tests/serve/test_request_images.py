"""Images of requests: kinds, base64, and those that are made to exhaust memory."""

import base64
import io
import json
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from tests.serve.conftest import encode, in_json, png
from ttc.data import as_tensor, embedded
from ttc.data.decoding import Fitting
from ttc.serve.request_images import RequestError, read_images
from ttc.serve.serve_settings import ServeSettings

FITTING = Fitting.to(32)
SETTINGS = ServeSettings("embedded", max_images=4, max_pixels=1_000_000)
JSON = "application/json"


def png_header(wide: int, high: int) -> bytes:
    """A PNG file of a few bytes that states any size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", wide, high, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("kind", ["image/png", "image/png; q=1", "IMAGE/PNG", "application/octet-stream"])
def test_pixels_are_those_of_the_file(kind: str) -> None:
    expected = as_tensor(embedded().pixels([3]))
    assert torch.equal(read_images(png(3), kind, FITTING, SETTINGS), expected)


def test_json_has_one_image_or_several_and_data_urls() -> None:
    expected = as_tensor(embedded().pixels([1, 2]))
    assert torch.equal(read_images(in_json(png(1), png(2)), JSON, FITTING, SETTINGS), expected)
    url = f"data:image/png;base64,{base64.b64encode(png(1)).decode()}"
    assert torch.equal(read_images(json.dumps({"image": url}).encode(), JSON, FITTING, SETTINGS), expected[:1])


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "1"])
def test_every_mode_of_an_image_is_converted(mode: str) -> None:
    file = io.BytesIO()
    Image.new("RGB", (40, 30), (200, 100, 50)).convert(mode).save(file, "JPEG" if mode == "CMYK" else "PNG")
    assert read_images(file.getvalue(), "image/png", FITTING, SETTINGS).shape == (1, 3, 32, 32)


@pytest.mark.parametrize(("wide", "high"), [(1001, 1000), (60_000, 60_000), (10_000, 9_500), (2_000_000_000, 1)])
def test_a_decompression_bomb_is_not_decoded(wide: int, high: int) -> None:
    with pytest.raises(RequestError, match=r"pixels") as caught:
        read_images(png_header(wide, high), "image/png", FITTING, SETTINGS)
    assert caught.value.status == 413


def test_a_thin_image_would_become_enormous() -> None:
    thin = encode(np.zeros((1, 5000, 3), np.uint8))
    with pytest.raises(RequestError, match="image 0 has 5000 x 1 pixels; the limit is 1,000,000 pixels, also resized"):
        read_images(thin, "image/png", FITTING, SETTINGS)


@pytest.mark.parametrize("kind", ["GIF", "BMP", "TIFF", "WEBP"])
def test_other_formats_are_not_decoded(kind: str) -> None:
    with pytest.raises(RequestError, match="not a JPEG or PNG"):
        read_images(encode(np.zeros((8, 8, 3), np.uint8), kind), "application/octet-stream", FITTING, SETTINGS)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"\xff", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"[]", "expected"),
        (b"{}", "expected"),
        (b'{"images": "x"}', "expected"),
        (b'{"images": [1]}', "expected"),
        (b'{"image": "\xc3\xa9"}', "image 0 is not valid base64"),
        (b'{"images": ["a", "b", "c", "d", "e"]}', "at most 4 images"),
    ],
)
def test_json_without_images_is_a_sentence(body: bytes, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        read_images(body, JSON, FITTING, SETTINGS)
