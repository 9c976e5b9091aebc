"""Symbols record operations, pass for what they stand for, and stop where a value would be needed."""

import operator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ttc.fast.symbol import NotRecordableError, Recorder, Slot, Symbol, slots, to_slots


@pytest.fixture
def x() -> Any:
    return Symbol(Recorder(), 0)


def recorded(x: Any) -> list[tuple[str, object]]:
    return [(node.kind, node.function or node.target) for node in x._recorder.nodes]


def test_functions_methods_attributes_and_operators_are_recorded(x: Any) -> None:
    F.max_pool2d(torch.relu(x), 2)
    1 - x.mean((2, 3)) * 2
    n, _ = x.shape[:2]
    assert recorded(x) == [
        *(("function", torch.relu), ("function", F.max_pool2d), ("method", "mean"), ("function", operator.mul)),
        *(("function", operator.sub), ("attribute", "shape"), *[("function", operator.getitem)] * 3),
    ]
    assert x._recorder.nodes[4].args == (1, Slot(4))
    assert isinstance(n, int)


def test_it_passes_for_what_it_stands_for(x: Any) -> None:
    assert isinstance(x, Tensor)
    assert isinstance(x.shape, torch.Size)
    assert isinstance(x.size(0), int)
    assert isinstance(x.dtype, torch.dtype)
    assert not hasattr(x, "no_such_method")


@pytest.mark.parametrize("needs_a_value", [bool, len, int, float, list, hash, lambda x: 1 in x])
def test_what_needs_a_value_stops_the_recording(x: Any, needs_a_value: object) -> None:
    assert callable(needs_a_value)
    with pytest.raises(NotRecordableError):
        needs_a_value(x)
    with pytest.raises(NotRecordableError):
        x[0] = 1
    with pytest.raises(NotRecordableError):
        x + torch.zeros(2)  # a tensor that is no parameter or buffer: it could change


def test_slots_are_found_in_arguments(x: Any) -> None:
    y = x + 1
    argument = to_slots([x, (slice(None, y), {"key": x})])
    assert argument == [Slot(0), (slice(None, Slot(1)), {"key": Slot(0)})]
    assert list(slots(argument)) == [Slot(0), Slot(1), Slot(0)]
