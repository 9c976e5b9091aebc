"""The Fisher penalty by its definition."""

from typing import Any

import pytest
import torch
from torch import nn

import ttc
from ttc.clustering import FisherPenalty
from ttc.core import Classifier
from ttc.nn import copy_with_trainable_norms


def network() -> Classifier:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)]
    return copy_with_trainable_norms(Classifier(nn.Sequential(*layers)))


def test_the_penalty_is_quadratic_around_the_source() -> None:
    model, images = network(), torch.rand(10, 3, 6, 6)
    penalty = FisherPenalty(model, images, weight=2.0, batch_size=5)
    assert penalty(model) == 0
    (name, first), *_ = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    with torch.no_grad():
        first[0] += 3.0
    squares = []
    for batch in images.split(5):
        fresh = network()
        parameter = dict(fresh.named_parameters())[name]
        logits = fresh(batch).logits
        nn.functional.cross_entropy(logits, logits.argmax(1)).backward()
        assert parameter.grad is not None
        squares.append(parameter.grad[0] ** 2)
    expected = 2.0 * (squares[0] + squares[1]) / 2 * 3.0**2
    torch.testing.assert_close(penalty(model).detach(), expected)


@pytest.mark.parametrize(("options", "message"), [({"weight": -1.0}, "not negative"), ({"batch_size": 0}, "positive")])
def test_invalid_numbers_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ttc.TTCError, match=message):
        FisherPenalty(network(), torch.rand(4, 3, 6, 6), **{"weight": 1.0, **options})
