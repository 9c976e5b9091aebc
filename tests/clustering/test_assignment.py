"""The A-step: views, fusion and entropy; Lemma 1 of the paper."""

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from ttc.clustering import (
    assign,
    identity,
    mean_of_views,
    softmax_entropy,
)
from ttc.core import Classifier
from ttc.nn import copy_with_trainable_norms


def test_views_pass_one_by_one_with_their_own_statistics(model: nn.Module, stream: list[Tensor]) -> None:
    prepared = copy_with_trainable_norms(Classifier(model))
    views = [identity, lambda x: x * 0.5]
    apart = assign(prepared, stream[0], views, mean_of_views)
    together = assign(prepared, stream[0], views, mean_of_views, together=True)
    assert torch.equal(apart.views[1].logits, prepared(stream[0] * 0.5).logits)
    assert not torch.allclose(apart.logits, together.logits, atol=1e-2)
    assert together.views[1].features.shape == apart.views[1].features.shape


@settings(max_examples=60, deadline=None)
@given(classes=st.integers(2, 1000), seed=st.integers(0, 2**31), scale=st.floats(0.1, 5.0))
def test_a_small_step_raises_the_largest_probability(classes: int, seed: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(1, classes, generator=generator, dtype=torch.float64) * scale).requires_grad_(True)
    (gradient,) = torch.autograd.grad(softmax_entropy(logits).sum(), logits)
    before = logits.detach().softmax(1)
    after = (logits.detach() - 1e-3 * gradient).softmax(1)
    top = int(before.argmax())
    assume(before[0, top] < 1 - 1e-9)  # else the change is below the resolution of float64
    assert after[0, top] > before[0, top]
    assert after[0].sum() - after[0, top] < before[0].sum() - before[0, top]


def test_entropy_is_exact_at_its_ends() -> None:
    for classes in (2, 10, 1000):
        uniform = softmax_entropy(torch.zeros(1, classes, dtype=torch.float64))
        torch.testing.assert_close(uniform, torch.tensor([float(classes)], dtype=torch.float64).log())
    assert softmax_entropy(torch.tensor([[1e4, 0.0, 0.0]])).item() == 0.0  # no 0 · log 0
