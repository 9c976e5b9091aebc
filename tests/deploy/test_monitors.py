"""Signals without labels: collapse of predictions, drift of predictions and parameters, dropped batches."""

import math
import re

import pytest
import torch
from torch import Tensor, nn

from ttc.core import Part
from ttc.deploy import Limits
from ttc.deploy.monitors import (
    MovingAverage,
    PredictionMonitor,
    count_dropped_batches,
)


def one_hot(classes: Tensor, count: int, confidence: float = 1.0) -> Tensor:
    return confidence * nn.functional.one_hot(classes, count).float()


def test_a_moving_average_is_exact_at_first_and_forgets_later() -> None:
    average, values = MovingAverage(10), [1.0, 4.0, 2.0, 5.0]
    for value in values:
        average.update(torch.tensor(value), samples=1)
    assert average.value.item() == pytest.approx(sum(values) / 4)
    for _ in range(100):
        average.update(torch.tensor(7.0), samples=1)
    assert average.value.item() == pytest.approx(7.0, abs=1e-3)
    assert average.effective_samples == 10


@pytest.mark.parametrize(
    ("later", "message"),
    [
        (one_hot(torch.zeros(400, dtype=torch.long), 4), "% of recent predictions are one class"),
        (one_hot(torch.arange(400) % 2, 4), r"recent predictions cover 2\.\d effective classes, usually 4.0"),
        (one_hot(torch.arange(400) % 4, 4, confidence=30), r"the mean entropy fell to 0\.0.., usually 1\.2"),
    ],
    ids=["one class", "few classes", "overconfidence"],
)
def test_collapsed_predictions_are_a_signal_against_their_history(later: Tensor, message: str) -> None:
    limits = Limits(class_fraction=0.9, effective_classes=0.6)
    monitor = PredictionMonitor(limits, recent_images=100, history_images=5000)
    assert monitor.usual_classes.samples == 0
    for batch in one_hot(torch.arange(1000) % 4, 4).split(50):
        monitor.observe(batch)
        assert monitor.signal() is None
        monitor.extend_history(50)
    assert monitor.has_history
    for batch in later.split(50):
        monitor.observe(batch)
    found = monitor.signal()
    assert found is not None
    assert re.search(message, found), found
    monitor.discard_recent()
    monitor.observe(one_hot(torch.arange(40) % 4, 4))
    assert monitor.signal() is None


def test_extreme_logits_have_a_finite_entropy() -> None:
    monitor = PredictionMonitor(Limits(), recent_images=100, history_images=5000)
    monitor.observe(torch.tensor([[3e38, -3e38], [1.0, 0.0]]))
    assert math.isfinite(monitor.measurements()["entropy"])


def test_dropped_batches_are_summed_over_all_parts() -> None:
    class Leaf(Part):
        dropped_batches = 3

    class Middle(Part):
        state_attributes = ("leaf", "leaves")
        dropped_batches = 1

        def __init__(self) -> None:
            self.leaf, self.leaves = Leaf(), [Leaf(), Leaf()]

    assert count_dropped_batches(Middle()) == 10
