"""The images of a request: a JPEG or PNG body, or base64 in JSON, checked before anything large is decoded."""

import base64
import binascii
import io
import json
from typing import Any

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from ttc.data import as_tensor
from ttc.data.decoding import Fitting, to_rgb
from ttc.data.images import Pixels
from ttc.errors import TTCError
from ttc.serve.serve_settings import ServeSettings

RAW_TYPES = ("image/jpeg", "image/png", "application/octet-stream")
FORMATS = ("JPEG", "PNG")  # every other decoder would only be more code to attack


class RequestError(TTCError):
    """A request that gets an error status; the message is what the client reads.

    Args:
        status: The HTTP status.
        message: One sentence for the client.
        retry_after: Seconds after which the same request may succeed.
    """

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after


def read_images(body: bytes, content_type: str, fitting: Fitting, settings: ServeSettings) -> Tensor:
    """Decode the images of a request to a batch, fitted to the model.

    Args:
        body: The body of the request.
        content_type: Its ``Content-Type`` header.
        fitting: How images are resized and cropped.
        settings: The limits.

    Returns:
        Images (N, 3, H, W) in [0, 1].

    Raises:
        RequestError: If the body contains no image, too many, or too large ones.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind in RAW_TYPES:
        files = [body]
    elif kind == "application/json":
        files = _files_in_json(body, settings.max_images)
    else:
        raise RequestError(
            415, f"expected Content-Type {', '.join(RAW_TYPES)} or application/json, got {kind[:80] or 'none'}"
        )
    pixels = [_decode(file, position, fitting, settings.max_pixels) for position, file in enumerate(files)]
    batch: Tensor = as_tensor(np.stack(pixels))
    return batch.to(torch.float32)


def _files_in_json(body: bytes, most: int) -> list[bytes]:
    try:
        content: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, "the body is not valid JSON") from error
    images = content.get("images", [content.get("image")]) if isinstance(content, dict) else None
    if not isinstance(images, list) or not images or not all(isinstance(image, str) for image in images):
        raise RequestError(400, 'expected {"image": BASE64} or {"images": [BASE64, …]} with at least one image')
    if len(images) > most:
        raise RequestError(413, f"a request has at most {most} images, got {len(images)}: send several requests")
    return [_from_base64(image, position) for position, image in enumerate(images)]


def _from_base64(text: str, position: int) -> bytes:
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestError(400, f"image {position} is not valid base64") from error


def _decode(file: bytes, position: int, fitting: Fitting, max_pixels: int) -> Pixels:
    """Decode one image; its header states its size, so that one that is too large is never decoded."""
    try:
        with Image.open(io.BytesIO(file), formats=FORMATS) as image:
            wide, high = image.size
            if max(wide * high, _resized_pixels(wide, high, fitting)) > max_pixels:
                raise RequestError(
                    413,
                    f"image {position} has {wide} x {high} pixels; the limit is {max_pixels:,} pixels, also resized",
                )
            return to_rgb(image, fitting)
    except RequestError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise RequestError(413, f"image {position} has more than {max_pixels:,} pixels") from error
    except UnidentifiedImageError as error:
        raise RequestError(400, f"image {position} is not a JPEG or PNG image") from error
    except Exception as error:  # decoders raise any exception on damaged files
        raise RequestError(400, f"image {position} is damaged and cannot be decoded") from error


def _resized_pixels(wide: int, high: int, fitting: Fitting) -> float:
    """Return how many pixels an image has when its shorter side is resized: a thin one becomes enormous."""
    scale = fitting.resize / max(1, min(wide, high))
    return wide * high * scale * scale
