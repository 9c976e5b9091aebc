"""The distance of an adapter from where it began."""

import math

import pytest
import torch
from torch import nn

import ttc
from ttc.core.drift import parameter_drift


def test_parameter_drift_is_the_relative_distance_from_the_initial_state(model: nn.Module) -> None:
    adapter = ttc.adapt(model, "tent")
    assert parameter_drift(adapter) == 0.0
    with torch.no_grad():
        for parameter in adapter.model.parameters():
            if parameter.requires_grad:
                parameter.mul_(1.5)
    assert parameter_drift(adapter) == pytest.approx(0.5)
    assert parameter_drift(ttc.adapt(model, "source")) == 0.0
    with torch.no_grad():
        next(p for p in adapter.model.parameters() if p.requires_grad).fill_(float("nan"))
    assert math.isnan(parameter_drift(adapter))
