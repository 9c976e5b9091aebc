"""Lemma 1: a small gradient step on the entropy raises the largest probability, for any number of classes."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ttc.clustering import softmax_entropy


@settings(max_examples=60, deadline=None)
@given(classes=st.integers(2, 1000), seed=st.integers(0, 2**31), scale=st.floats(0.1, 5.0))
def test_a_small_step_raises_the_largest_probability(classes: int, seed: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(1, classes, generator=generator, dtype=torch.float64) * scale).requires_grad_(True)
    (gradient,) = torch.autograd.grad(softmax_entropy(logits).sum(), logits)
    before = logits.detach().softmax(1)
    after = (logits.detach() - 1e-3 * gradient).softmax(1)
    top = int(before.argmax())
    assert after[0, top] > before[0, top]
    assert after[0].sum() - after[0, top] < before[0].sum() - before[0, top]


def test_entropy_is_exact_at_its_ends() -> None:
    for classes in (2, 10, 1000):
        uniform = softmax_entropy(torch.zeros(1, classes, dtype=torch.float64))
        torch.testing.assert_close(uniform, torch.tensor([float(classes)], dtype=torch.float64).log())
    assert softmax_entropy(torch.tensor([[1e4, 0.0, 0.0]])).item() == 0.0  # no 0 · log 0
