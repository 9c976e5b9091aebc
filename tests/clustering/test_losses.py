"""Losses of the U-step."""

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.clustering import (
    Assignment,
    Diversity,
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


def test_diversity_is_smallest_when_classes_are_predicted_equally_often() -> None:
    even, skewed = torch.eye(3) * 9, torch.eye(3)[[0, 0, 1]] * 9
    values = [Diversity(2.0)(Assignment(logits, softmax_entropy(logits), ())) for logits in (even, skewed)]
    mean = skewed.softmax(1).mean(0)
    torch.testing.assert_close(values[0], torch.full((3,), -2 * torch.tensor(3.0).log().item()), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(values[1], (2 * (mean * (mean + 1e-5).log()).sum()).expand(3))
    assert (values[0] < values[1]).all()
