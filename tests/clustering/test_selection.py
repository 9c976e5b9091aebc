"""Sample selection, with the numerical traps it must survive."""

import copy

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import ttc
from ttc.clustering import (
    Assignment,
    BelowMeanEntropy,
    ClassBalanced,
    ClusteringAdapter,
    NotSingle,
    ReliableAndDiverse,
    SelectAll,
    Step,
    softmax_entropy,
)
from ttc.core import Prediction


def assignment_of(logits: Tensor) -> Assignment:
    return Assignment(logits, softmax_entropy(logits), (Prediction(logits, logits),))


@settings(max_examples=100, deadline=None)
@given(value=st.floats(0.0, 10.0), count=st.integers(1, 300))
def test_equal_entropies_select_everyone(value: float, count: int) -> None:
    entropy = torch.full((count,), value)
    weights = BelowMeanEntropy()(Assignment(torch.zeros(count, 2), entropy, ()))
    assert weights.sum() == count  # although the rounded mean may lie below every value


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**31), count=st.integers(2, 100))
def test_selection_keeps_the_low_entropies(seed: int, count: int) -> None:
    logits = torch.randn(count, 5, generator=torch.Generator().manual_seed(seed)) * 3
    found = assignment_of(logits)
    weights = BelowMeanEntropy()(found)
    assert 1 <= weights.sum() <= count
    assert set(weights.unique().tolist()) <= {0.0, 1.0}
    if 0 < weights.sum() < count:
        assert found.entropy[weights == 1].max() <= found.entropy[weights == 0].min()


def test_of_two_samples_the_more_confident_is_selected() -> None:
    assert BelowMeanEntropy()(assignment_of(torch.tensor([[5.0, 0.0], [1.0, 0.0]]))).tolist() == [1.0, 0.0]


def test_an_empty_selection_takes_no_step(model: nn.Module, stream: list[Tensor]) -> None:
    steps: list[Step] = []
    adapter = ttc.adapt(model, "eta", entropy_margin=1e-9)
    assert isinstance(adapter, ClusteringAdapter)
    adapter.observer = steps.append
    predictions = [adapter(stream[0]) for _ in range(3)]
    assert all(torch.equal(predictions[0], prediction) for prediction in predictions)
    assert [step.loss for step in steps] == [None] * 3
    assert adapter.updater.batches == 0


def test_an_empty_selection_after_steps_ignores_momentum(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "eta")
    assert isinstance(adapter, ClusteringAdapter)
    assert isinstance(adapter.select, ReliableAndDiverse)
    adapter(stream[0])
    adapter.select.entropy_margin = 0.0
    before = adapter(stream[1])
    assert torch.equal(before, adapter(stream[1]))


def test_eta_forgets_its_average_on_reset(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "eta")
    assert isinstance(adapter, ClusteringAdapter)
    assert isinstance(adapter.select, ReliableAndDiverse)
    adapter(stream[0])
    assert adapter.select.mean_probability is not None
    adapter.reset()
    assert adapter.select.mean_probability is None


def test_a_sample_alone_in_its_batch_is_left_out() -> None:
    assert NotSingle()(assignment_of(torch.zeros(1, 3))).tolist() == [0.0]
    assert NotSingle()(assignment_of(torch.zeros(2, 3))).tolist() == [1.0, 1.0]


def test_classes_predicted_often_weigh_less() -> None:
    select = ClassBalanced(SelectAll(), decay=0.5)
    logits = torch.tensor([[9.0, 0, 0], [9.0, 0, 0], [0, 9.0, 0]])
    assert torch.equal(select(assignment_of(logits)), torch.ones(3))  # all frequencies are 1/3 at first
    z = 0.5 / 3 + 0.5 * logits.softmax(1).mean(0)
    expected = 1 / (z[torch.tensor([0, 0, 1])] + 1e-6)
    torch.testing.assert_close(select(assignment_of(logits)), expected / expected.mean())
    assert select.never_empty


def test_class_weights_multiply_those_of_the_base() -> None:
    logits = torch.tensor([[9.0, 0, 0], [0.1, 0, 0], [0, 9.0, 0]])
    base = ReliableAndDiverse(entropy_margin=0.5, redundancy_margin=0.9)
    both = ClassBalanced(copy.deepcopy(base))(assignment_of(logits))
    torch.testing.assert_close(both, base(assignment_of(logits)))
    assert both[1] == 0
    assert not ClassBalanced(base).never_empty
