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
    conservative_entropy,
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


def assigned(logits: Tensor) -> Assignment:
    return Assignment(logits, softmax_entropy(logits), ())


def test_the_conservative_entropy_by_its_definition() -> None:
    logits = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3
    evidence = logits.exp()
    strength = evidence.sum(1, keepdim=True) + 5
    belief, uncertainty = evidence / strength, 5 / strength
    torch.testing.assert_close((belief.sum(1, keepdim=True) + uncertainty), torch.ones(6, 1, dtype=torch.float64))
    expected = -(belief * belief.log()).sum(1) - (uncertainty * uncertainty.log()).squeeze(1)
    torch.testing.assert_close(conservative_entropy(assigned(logits)), expected)


def test_with_much_evidence_the_conservative_entropy_is_the_entropy() -> None:
    logits = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    assert not torch.allclose(conservative_entropy(assigned(logits)), softmax_entropy(logits), rtol=0.1)
    torch.testing.assert_close(conservative_entropy(assigned(logits + 30)), softmax_entropy(logits + 30))


def test_the_conservative_entropy_does_not_reward_longer_logits() -> None:
    """Its gradient has no component along the logits; the entropy's has."""
    logits = torch.randn(6, 5, generator=torch.Generator().manual_seed(0)).requires_grad_(True)

    def along(loss: Tensor) -> Tensor:
        (gradient,) = torch.autograd.grad(loss.sum(), logits)
        return (gradient * logits.detach()).sum(1)

    torch.testing.assert_close(along(conservative_entropy(assigned(logits))), torch.zeros(6), atol=1e-6, rtol=0)
    assert (along(softmax_entropy(logits)).abs() > 1e-3).all()


def test_the_conservative_entropy_of_zero_logits_has_a_gradient() -> None:
    logits = torch.zeros(2, 5, requires_grad=True)
    (gradient,) = torch.autograd.grad(conservative_entropy(assigned(logits)).sum(), logits)
    assert gradient.isfinite().all()
