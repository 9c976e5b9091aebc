"""Losses of the U-step."""

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.clustering import (
    Assignment,
    SimilarityPreserving,
    assign,
    identity,
    mean_of_views,
    similarity,
    softmax_entropy,
)
from ttc.core import Classifier, Prediction


def test_similarity_falls_with_distance() -> None:
    assert similarity(torch.ones(3, 5), torch.ones(3, 5)).tolist() == [1.0] * 3
    torch.testing.assert_close(similarity(torch.zeros(1, 4), torch.ones(1, 4), 2.0), torch.tensor([-0.5]).exp())


def test_an_attached_similarity_repels_distant_pairs() -> None:
    """Why κ is detached: beyond ‖Δg‖² = 2σ² the attached loss falls as the pair moves apart."""

    def slope(distance: float, detach: bool) -> float:
        x = torch.tensor([[distance, 0.0]], requires_grad=True)
        zero = torch.zeros(1, 2)
        found = Assignment(x, softmax_entropy(x), (Prediction(x, x), Prediction(zero, zero)))
        (gradient,) = torch.autograd.grad(SimilarityPreserving(detach_similarity=detach)(found).sum(), x)
        return float(gradient[0, 0])

    assert slope(1.0, detach=False) > 0
    assert slope(2.0, detach=False) < 0
    assert slope(2.0, detach=True) > 0


def test_the_constraint_needs_two_views(model: nn.Module, stream: list[Tensor]) -> None:
    found = assign(Classifier(model), stream[0], [identity], mean_of_views)
    with pytest.raises(ttc.TTCError, match="compares two views, the assignment has one"):
        SimilarityPreserving()(found)
