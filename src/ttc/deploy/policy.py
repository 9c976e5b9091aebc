"""The guard's settings, and the events it reports."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from ttc.errors import TTCError


@dataclass(frozen=True)
class Limits:
    """Where the signs begin; the defaults are explained in docs/reliability.md.

    ``share``: of the recent answers in one class. ``classes``: recent effective number of classes over its history.
    ``entropy``: recent mean entropy over its history. ``drift``: ‖θ - θ₀‖ / ‖θ₀‖. ``steadiness``: the lead of the
    source in agreeing with itself on mirrored images. ``source_movement`` and ``adapted_movement``: how far the
    predictions of the two networks may move from block to block, in units of what chance does; both together are a
    sign.
    """

    share: float = 0.9
    classes: float = 0.5
    entropy: float = 0.2
    drift: float = 0.5
    steadiness: float = 0.02
    source_movement: float = 1.5
    adapted_movement: float = 1.2

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value < math.inf:
                raise TTCError(f"the limit {name} is a positive number, got {value}")


@dataclass(frozen=True)
class Policy:
    """When the guard looks, what it keeps, and how patient it is.

    It looks after every ``look_every`` images. Averages span ``memory`` images, their history ``history``. It keeps
    ``snapshots`` states, one every ``snapshot_every`` healthy looks, and ``events`` events. The first ``memory`` images
    and then ``source_fraction`` of all are shown to the source model too; 0 turns that off. After ``patience`` healthy
    looks it steps back down.
    """

    limits: Limits = field(default_factory=Limits)
    look_every: int = 50
    memory: int = 200
    history: int = 5000
    snapshots: int = 5
    snapshot_every: int = 10
    events: int = 1000
    source_fraction: float = 0.1
    patience: int = 20

    def __post_init__(self) -> None:
        for name in ("look_every", "memory", "history", "snapshots", "snapshot_every", "events", "patience"):
            if getattr(self, name) < 1:
                raise TTCError(f"{name} is a positive number, got {getattr(self, name)}")
        if not 0 <= self.source_fraction <= 1:
            raise TTCError(f"source_fraction lies in [0, 1], got {self.source_fraction}")


class Event(NamedTuple):
    """Something the guard did: after how many images, what (warn, roll back, freeze, source, resume, ...), and why."""

    images: int
    action: str
    reason: str
