"""The protocol: everything that decides a number, as one frozen value with a stable hash."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from ttc.errors import TTCError


@dataclass(frozen=True)
class Protocol:
    """One cell of a benchmark, fully stated: two runs with the same hash are the same experiment.

    Args:
        dataset: The dataset's name, without the directory it is in.
        data_checksum: The checksum of its images and labels.
        model: The model's name.
        model_checksum: The SHA-256 of its parameters and buffers.
        method: A name of :data:`ttc.METHODS`, or ``module:function`` for a user's own builder.
        options: All options of the method as JSON, defaults included.
        corruptions: The corruptions, in the order of the stream.
        severity: Their severity, 0 for clean images; in the gradual scenario the highest one.
        images: The number of images per domain.
        seed: Decides the order of the images alone: the corrupted images are the same for every seed.
        batch_size: Images per batch.
        scenario: The scenario with its options.
        optimizer: The optimizer that the method built, or ``none``.
        dtype: The floating-point type of the model.
        device: Where the model ran.
        threads: Torch threads: sums are rounded in another order when they are split among more threads.
        version: The version of ttc.
        method_checksum: The SHA-256 of the source file of a user's own builder, else empty.
        source_split: The clean images that a method which needs source images gets: dataset and number, else empty.
        source_checksum: The checksum of these images, else empty.
        textures: Which frost textures were used, ``original frost`` or ``procedural frost``; empty without frost, and
            where the corrupted images are published files.

    Raises:
        TTCError: If a number is out of range.
    """

    dataset: str
    data_checksum: str
    model: str
    model_checksum: str
    method: str
    options: str
    corruptions: tuple[str, ...]
    severity: int
    images: int
    seed: int
    batch_size: int
    scenario: str
    optimizer: str
    dtype: str
    device: str
    threads: int
    version: str
    method_checksum: str = ""
    source_split: str = ""
    source_checksum: str = ""
    textures: str = ""

    def __post_init__(self) -> None:
        for name, least in {"images": 1, "batch_size": 1, "seed": 0, "threads": 1, "severity": 0}.items():
            if getattr(self, name) < least:
                raise TTCError(f"{name.replace('_', ' ')} must be at least {least}, got {getattr(self, name)}")

    @property
    def hash(self) -> str:
        """The SHA-256 of :meth:`json`."""
        return hashlib.sha256(self.json().encode()).hexdigest()

    def json(self) -> str:
        """Return the canonical JSON that is hashed: sorted keys, no blanks, ASCII."""
        values = asdict(self)
        for name in ("method_checksum", "source_split", "source_checksum", "textures"):
            if not values[name]:
                del values[name]  # so that cells without it hash as before there was this field
        return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def read(cls, text: str) -> "Protocol":
        """Parse what :meth:`json` returned.

        Args:
            text: The canonical JSON.
        """
        values: dict[str, Any] = json.loads(text)
        return cls(**{**values, "corruptions": tuple(values["corruptions"])})

    @property
    def domain(self) -> str:
        """The data in a few words: ``fog 5``, ``15 corruptions 5``, or ``frost 5 (original frost)``."""
        corruption = self.corruptions[0] if len(self.corruptions) == 1 else f"{len(self.corruptions)} corruptions"
        return f"{corruption} {self.severity}" + (f" ({self.textures})" if self.textures else "")

    @property
    def label(self) -> str:
        """The cell in one line, for messages."""
        return self.describe(self.method)

    def describe(self, method: str) -> str:
        """Return the cell in one line, with the method as it is called elsewhere.

        Args:
            method: The label of the method, such as ``ttc(bandwidth=2)``.
        """
        return f"{method}, {self.domain}, {self.scenario}, batch {self.batch_size}, seed {self.seed}"


def difference(one: Protocol, other: Protocol) -> dict[str, tuple[object, object]]:
    """Compare two protocols field by field, and the method's options one by one.

    Args:
        one: A protocol.
        other: Another one.

    Returns:
        The fields that differ, with both values; empty if the protocols have the same hash.
    """
    left, right = _flatten(one), _flatten(other)
    missing = "(not an option)"
    return {
        name: (left.get(name, missing), right.get(name, missing))
        for name in dict.fromkeys([*left, *right])
        if left.get(name, missing) != right.get(name, missing)
    }


def _flatten(protocol: Protocol) -> Mapping[str, object]:
    values: dict[str, object] = {}
    for field in fields(protocol):
        value = getattr(protocol, field.name)
        if field.name == "options":
            values |= {f"options.{key}": option for key, option in json.loads(value).items()}
        else:
            values[field.name] = value
    return values
