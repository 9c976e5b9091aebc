"""Entropy against torch's own, and at the extremes."""

import torch

from ttc.core.entropy import softmax_entropy


def test_it_is_the_entropy_of_the_categorical_distribution() -> None:
    logits = 5 * torch.randn(50, 7, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(softmax_entropy(logits), torch.distributions.Categorical(logits=logits).entropy())
    assert softmax_entropy(logits.bfloat16()).dtype == torch.float32
    assert softmax_entropy(logits.double()).dtype == torch.float64


def test_extreme_logits_have_finite_values_and_gradients() -> None:
    logits = torch.tensor([[3e38, -3e38], [0.0, float("-inf")], [1.0, 2.0]], requires_grad=True)
    values = softmax_entropy(logits)
    assert values[:2].tolist() == [0.0, 0.0]
    values[[0, 2]].sum().backward()
    assert logits.grad is not None
    assert logits.grad[[0, 2]].isfinite().all()
