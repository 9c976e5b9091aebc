"""The constraint with a stored neighbour, entry by entry."""

import pytest
import torch
from torch import Tensor

import ttc
from ttc.clustering import Assignment, SimilarityPreserving, StoredNeighbour, softmax_entropy
from ttc.core import Prediction


def assignment_of(features: Tensor, logits: Tensor) -> Assignment:
    return Assignment(logits, softmax_entropy(logits), (Prediction(logits, features),))


def batches(count: int, size: int = 5, classes: int = 3) -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(0)
    return [(torch.randn(size, 4), torch.randn(size, classes)) for _ in range(count)]


@pytest.mark.parametrize("unit", [False, True])
def test_the_neighbour_is_the_nearest_stored_sample_of_the_class(unit: bool) -> None:
    loss = StoredNeighbour(SimilarityPreserving(bandwidth=2.0, normalize_features=unit), size=7)
    past: list[tuple[Tensor, Tensor, int]] = []
    for features, logits in batches(4):
        expected = []
        for feature, row in zip(features, logits, strict=True):
            same = [entry for entry in past if entry[2] == int(row.argmax())]
            own = feature / feature.norm() if unit else feature
            pairs = [(float((own - (f / f.norm() if unit else f)).square().sum()), y) for f, y, _ in same]
            if not pairs:
                expected.append(0.0)
                continue
            distance, other = min(pairs, key=lambda pair: pair[0])
            expected.append(float(torch.exp(torch.tensor(-distance / 8)) * (row - other).square().sum()))
        found = loss(assignment_of(features, logits))
        torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-4, atol=1e-5)
        past = [*past, *((f, y, int(y.argmax())) for f, y in zip(features, logits, strict=True))][-7:]
    assert loss.features is not None
    assert len(loss.features) == 7


def test_stored_samples_are_constant_and_samples_are_not() -> None:
    loss = StoredNeighbour(SimilarityPreserving(bandwidth=5.0))
    first, second = batches(2, size=8, classes=2)
    logits = first[1].clone().requires_grad_()
    loss(assignment_of(first[0], logits)).sum()
    later = second[1].clone().requires_grad_()
    loss(assignment_of(second[0], later)).sum().backward()
    assert logits.grad is None
    assert later.grad is not None
    assert later.grad.any()


def test_a_repeated_batch_has_itself_as_neighbours() -> None:
    loss = StoredNeighbour(SimilarityPreserving())
    ((features, logits),) = batches(1)
    loss(assignment_of(features, logits))
    torch.testing.assert_close(loss(assignment_of(features, logits)), torch.zeros(5))


def test_a_memory_of_nothing_is_rejected() -> None:
    with pytest.raises(ttc.TTCError, match="memory_size is a positive number of samples, got 0"):
        StoredNeighbour(SimilarityPreserving(), size=0)
