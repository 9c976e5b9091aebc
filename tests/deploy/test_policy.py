"""Settings of the guard: values out of range are rejected in a sentence."""

from collections.abc import Callable

import pytest

import ttc
from ttc.deploy import Event, Limits, Policy


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Policy(check_every=0), "check_every must be a positive number, got 0"),
        (lambda: Policy(max_snapshots=-2), "max_snapshots must be a positive number, got -2"),
        (lambda: Policy(source_fraction=2), r"source_fraction must be in \[0, 1\], got 2"),
        (lambda: Limits(parameter_drift=-1), "the limit parameter_drift must be a positive number, got -1"),
        (lambda: Limits(entropy=float("nan")), "the limit entropy must be a positive number, got nan"),
    ],
)
def test_settings_out_of_range_are_rejected(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ttc.TTCError, match=message):
        make()


def test_an_event_becomes_json_by_its_fields() -> None:
    assert Event(50, "warn", "entropy")._asdict() == {"images": 50, "action": "warn", "reason": "entropy"}
