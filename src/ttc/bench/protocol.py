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

    ``options`` are all options of the method as JSON text, defaults filled in, and ``optimizer`` the one it really
    built. ``corruptions`` are met in this order, each at ``severity`` (in the gradual scenario: up to it and down
    again); ``images`` counts those of one domain, the first of the data set. ``seed`` decides the order alone: the
    corrupted images are the same for every seed. ``threads`` is stated because sums are rounded in another order when
    they are split among more threads.
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

    def __post_init__(self) -> None:
        for name, least in {"images": 1, "batch_size": 1, "seed": 0, "threads": 1, "severity": 0}.items():
            if getattr(self, name) < least:
                raise TTCError(f"{name.replace('_', ' ')} must be at least {least}, got {getattr(self, name)}")

    @property
    def hash(self) -> str:
        """The SHA-256 of the canonical JSON: sorted keys, no blanks, ASCII."""
        return hashlib.sha256(self.json().encode()).hexdigest()

    def json(self) -> str:
        """The canonical text that is hashed."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def read(cls, text: str) -> "Protocol":
        """The protocol that :meth:`json` wrote."""
        values: dict[str, Any] = json.loads(text)
        return cls(**{**values, "corruptions": tuple(values["corruptions"])})

    @property
    def domain(self) -> str:
        """What was shown, in a word or two: ``fog 5``, or ``15 corruptions 5``."""
        corruption = self.corruptions[0] if len(self.corruptions) == 1 else f"{len(self.corruptions)} corruptions"
        return f"{corruption} {self.severity}"

    @property
    def label(self) -> str:
        """The cell in one line, for progress and messages."""
        return f"{self.method}, {self.domain}, {self.scenario}, batch {self.batch_size}, seed {self.seed}"


def difference(one: Protocol, other: Protocol) -> dict[str, tuple[object, object]]:
    """The fields in which two protocols differ, with both values; the method's options one by one.

    Two protocols without a difference have the same hash.
    """
    left, right = _flat(one), _flat(other)
    missing = "(not an option)"
    return {
        name: (left.get(name, missing), right.get(name, missing))
        for name in dict.fromkeys([*left, *right])
        if left.get(name, missing) != right.get(name, missing)
    }


def _flat(protocol: Protocol) -> Mapping[str, object]:
    values: dict[str, object] = {}
    for field in fields(protocol):
        value = getattr(protocol, field.name)
        if field.name == "options":
            values |= {f"options.{key}": option for key, option in json.loads(value).items()}
        else:
            values[field.name] = value
    return values
