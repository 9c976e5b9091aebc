"""Gradient accumulation and optimizer steps."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from ttc.clustering import (
    Updater,
    selected_mean,
)
from ttc.errors import TTCError


def parameter(value: float = 0.0) -> nn.Parameter:
    return nn.Parameter(torch.tensor([value]))


def sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1.0)


@pytest.mark.parametrize(
    ("options", "sizes", "values"),
    [
        ({}, [10, 10], [-1, -2]),
        ({"accumulate": 2}, [10, 10, 10, 10], [0, -2, -2, -4]),
        ({"accumulate": 2, "counter_start": 0}, [10, 10, 10], [-1, -1, -3]),
        ({"accumulate": 2, "reduction": "mean"}, [10, 10], [0, -1]),
        ({"accumulate": None}, [100, 100, 40, 40], [0, -2, -2, -4]),  # Q follows the first batch
        ({"accumulate": None, "count": "samples"}, [100, 40, 60, 200], [0, 0, -3, -4]),
        ({"reference_batch": 20}, [10, 40], [-0.5, -2.5]),
    ],
    ids=str,
)
def test_the_updater_accumulates(options: dict[str, object], sizes: list[int], values: list[float]) -> None:
    weight = parameter()
    updater = Updater([weight], sgd, **options)  # type: ignore[arg-type]
    found = []
    for size in sizes:
        updater(weight.sum(), size)  # a gradient of one
        found.append(float(weight.detach()))
    assert found == values
    updater.reset()
    assert updater.accumulated == [None]


def test_flush_steps_with_what_there_is() -> None:
    weight = parameter()
    updater = Updater([weight], sgd, accumulate=3)
    updater.flush()
    assert float(weight.detach()) == 0
    updater(weight.sum(), 1)
    updater.flush()
    assert float(weight.detach()) == -1
    assert updater.accumulated_batches == 0


def test_parameters_out_of_reach_are_left_alone() -> None:
    used, unused = parameter(), parameter(3.0)
    updater = Updater([used, unused], sgd, accumulate=2)
    updater(used.sum(), 1)
    updater(used.sum(), 1)
    assert (float(used.detach()), float(unused.detach())) == (-2.0, 3.0)


def test_weights_enter_the_mean_over_selected() -> None:
    losses = torch.tensor([1.0, 2.0, 4.0])
    assert selected_mean(losses, torch.tensor([2.0, 0.0, 1.0])).item() == 3.0


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (lambda parameters: None, "must make an optimizer of parameters, .*; it returned NoneType"),
        (lambda: None, "; it failed: .*takes 0 positional arguments"),
        (partial(torch.optim.SGD, lr=-1), "; it failed: Invalid learning rate"),
    ],
)
def test_a_factory_that_makes_no_optimizer_is_rejected(factory: Any, message: str) -> None:
    with pytest.raises(TTCError, match=message):
        Updater([nn.Parameter(torch.zeros(2))], factory)


def test_a_step_that_is_not_finite_is_undone() -> None:
    parameter = nn.Parameter(torch.ones(2))
    updater = Updater([parameter], partial(torch.optim.SGD, lr=1e30), accumulate=1)
    with pytest.warns(UserWarning, match="was not finite and was undone"):
        updater((parameter * 1e15).sum(), 4)
    assert parameter.tolist() == [1.0, 1.0]
    assert parameter.grad is None
    assert (updater.dropped_batches, updater.accumulated_batches) == (1, 0)


def test_moments_that_are_not_finite_are_discarded() -> None:
    parameter = nn.Parameter(torch.ones(2))
    updater = Updater([parameter], partial(torch.optim.Adam, lr=1e-3), accumulate=1)
    updater(parameter.sum(), 4)
    updater.optimizer.state[parameter]["exp_avg_sq"].fill_(float("inf"))  # which would end all learning
    with pytest.warns(UserWarning, match="was undone"):
        updater(parameter.sum(), 4)
    updater(parameter.sum(), 4)
    assert parameter.tolist() == pytest.approx([0.998, 0.998])
