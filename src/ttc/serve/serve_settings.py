"""The settings of a server: what it predicts with, where it saves, and its limits."""

import hashlib
import math
import re
from dataclasses import dataclass, field
from pathlib import Path

from ttc.errors import TTCError

TOKEN_VARIABLE = "TTC_SERVE_TOKEN"
MINIMUM_TOKEN = 16  # characters: shorter ones can be guessed
LARGEST_PIXELS = 89_000_000  # beyond it Pillow takes an image for an attack
STREAM_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class ServeSettings:
    """Everything that a server needs, so that a process on another machine can build the same one.

    Args:
        model: The name of the model, as for ``ttc adapt``.
        method: The adaptation method.
        checkpoint: Weights to load.
        num_classes: The number of classes, where it is not known.
        statistics: The input statistics of a zoo model.
        head: The name of the final layer, where it cannot be detected.
        size: The side that images are resized to; by default the model's.
        device: Where to compute.
        small_batches: Whether the method is converted for batches of any size.
        guard: Whether each stream has a guard.
        class_names: A name for each class.
        state: The folder of saved streams.
        save_every: Images of a stream between two saves.
        max_streams: Streams in memory; the least recently used one is saved to disk to make room.
        max_saved: Streams in the folder; a new name beyond it is rejected.
        batch_size: Images per micro-batch.
        max_wait: Seconds that an image waits for others.
        max_queued: Images that a stream may have waiting, before requests get status 429.
        max_requests: Requests at the same time, before others get status 429.
        max_body: Bytes of a request.
        max_images: Images of a request.
        max_pixels: Pixels of an image, before and after it is resized.
        timeout: Seconds that a request may take.
        token_digest: The SHA-256 of the bearer token; empty for none. The token itself is stored nowhere.
        hosts: Values of the Host header that are accepted; empty for all.

    Raises:
        TTCError: If a number is out of range.

    Example:
        >>> ServeSettings("embedded", max_streams=4).max_streams
        4
    """

    model: str
    method: str = "ttc"
    checkpoint: str = ""
    num_classes: int | None = None
    statistics: str = ""
    head: str | None = None
    size: int | None = None
    device: str = "cpu"
    small_batches: bool = True
    guard: bool = True
    class_names: tuple[str, ...] = ()
    state: str = "served"
    save_every: int = 1000
    max_streams: int = 16
    max_saved: int = 10_000
    batch_size: int = 32
    max_wait: float = 0.02
    max_queued: int = 256
    max_requests: int = 64
    max_body: int = 16 << 20
    max_images: int = 64
    max_pixels: int = 40_000_000
    timeout: float = 30.0
    token_digest: str = field(default="", repr=False)
    hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        counts = ("save_every", "max_streams", "max_saved", "batch_size", "max_queued", "max_requests")
        for name in (*counts, "max_body", "max_images", "max_pixels"):
            if getattr(self, name) < 1:
                raise TTCError(f"{name} must be a positive number, got {getattr(self, name)}")
        if self.max_pixels > LARGEST_PIXELS:
            raise TTCError(f"max_pixels must be at most {LARGEST_PIXELS:,}, got {self.max_pixels:,}")
        if not 0 < self.timeout < math.inf:
            raise TTCError(f"timeout must be a positive number of seconds, got {self.timeout}")
        if not 0 <= self.max_wait < self.timeout:
            raise TTCError(f"max_wait must be at least 0 and less than timeout, got {self.max_wait}")

    @property
    def identity(self) -> dict[str, object]:
        """What decides whether a saved stream fits: a folder belongs to one of these."""
        names = ("model", "method", "checkpoint", "num_classes", "statistics", "head", "size", "small_batches", "guard")
        return {name: getattr(self, name) for name in names}


def valid_stream_name(name: str) -> str:
    """Return a stream's name, which is also the name of its folder.

    Args:
        name: What a client wrote.

    Raises:
        TTCError: If it is anything but 1 to 64 letters, digits, points, hyphens and underscores.

    Example:
        >>> valid_stream_name("camera-7")
        'camera-7'
    """
    if not STREAM_NAME.fullmatch(name):
        raise TTCError(
            "a stream name has 1 to 64 characters a-z, 0-9, '.', '_' and '-', and begins and ends with a letter or a "
            f"digit, got {name[:80]!r}"
        )
    return name


def digest_token(token: str) -> str:
    """Return the SHA-256 of a bearer token.

    Args:
        token: The token.

    Raises:
        TTCError: If it is too short, or contains characters that a header cannot.
    """
    if len(token) < MINIMUM_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise TTCError(
            f"a token has at least {MINIMUM_TOKEN} printable ASCII characters without spaces: make one with "
            "python -c 'import secrets; print(secrets.token_urlsafe())'"
        )
    return hashlib.sha256(token.encode()).hexdigest()


def read_token_digest(file: Path | None, variable: str | None) -> str:
    """Return the digest of the token in a file, else of the environment variable, else an empty string.

    Args:
        file: A file with the token in it.
        variable: The value of the environment variable.

    Raises:
        TTCError: If the file cannot be read, or the token is too short.
    """
    if file is not None:
        try:
            return digest_token(file.read_text(encoding="utf-8").strip())
        except (OSError, UnicodeDecodeError) as error:
            raise TTCError(f"cannot read the token file {file}: {error}") from error
    return digest_token(variable.strip()) if variable is not None else ""
