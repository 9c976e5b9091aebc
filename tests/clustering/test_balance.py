"""Soft weights and the balance of classes: their values, and that small batches add up to a large one."""

import pytest
import torch

from ttc import TTCError
from ttc.clustering import Assignment, ConfidenceWeights, Diversity, WindowedDiversity, softmax_entropy


def assignment(logits: torch.Tensor) -> Assignment:
    return Assignment(logits, softmax_entropy(logits), ())


def test_weights_are_relative_to_the_mean_entropy_of_a_full_window() -> None:
    labels = assignment(torch.randn(20, 4, generator=torch.Generator().manual_seed(0)))
    weights = ConfidenceWeights(window=20)(labels)
    torch.testing.assert_close(weights, torch.exp(labels.entropy.mean() - labels.entropy))


def test_the_mean_entropy_of_small_batches_is_a_moving_average() -> None:
    weigh = ConfidenceWeights(window=10)
    first, second = assignment(torch.zeros(1, 4)), assignment(torch.tensor([[9.0, 0.0, 0.0, 0.0]]))
    weigh(first)
    weight = weigh(second)
    expected = 0.9 * first.entropy + 0.1 * second.entropy - second.entropy
    torch.testing.assert_close(weight, expected.exp())


def test_over_a_full_window_the_gradient_is_that_of_diversity() -> None:
    logits = torch.randn(20, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    (found,) = torch.autograd.grad(WindowedDiversity(20)(assignment(logits)).mean(), logits)
    (expected,) = torch.autograd.grad(Diversity()(assignment(logits)).mean(), logits)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-6)


def test_equally_frequent_classes_leave_nothing_to_balance() -> None:
    logits = 3 * torch.eye(3).repeat(4, 1)
    torch.testing.assert_close(WindowedDiversity(12)(assignment(logits)), torch.zeros(12))


def test_single_images_are_drawn_to_the_class_that_was_predicted_least() -> None:
    balance = WindowedDiversity(10)
    for _ in range(20):
        balance(assignment(torch.tensor([[4.0, 0.0, -4.0]])))
    logits = torch.zeros(1, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(balance(assignment(logits)).sum(), logits)
    assert gradient[0].argmax() == 0
    assert gradient[0].argmin() == 2


@pytest.mark.parametrize("part", [ConfidenceWeights, WindowedDiversity])
def test_an_empty_window_is_rejected(part: type) -> None:
    with pytest.raises(TTCError, match="window"):
        part(0)
