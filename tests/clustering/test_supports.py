"""Supports: appended, pruned per class by entropy, and compared with prototypes."""

import pytest
import torch
from torch import nn

import ttc
from ttc.clustering import Supports, initial_supports, prototype_cosines, supports_per_class
from ttc.core import Classifier


def test_the_lowest_entropies_of_each_class_stay_in_order() -> None:
    logits = torch.tensor([[1.0, 0], [5.0, 0], [3.0, 0], [0, 2.0], [0, 4.0]])
    features = torch.arange(5.0)[:, None]
    supports = Supports.of(features[:2], logits[:2], with_logits=True)
    joined = supports.joined(Supports.of(features[2:], logits[2:], with_logits=True), 2, 2)
    assert joined.features.flatten().tolist() == [1, 2, 3, 4]
    assert joined.labels.tolist() == [0, 0, 1, 1]
    assert joined.logits is not None
    assert torch.equal(joined.logits, logits[1:])
    assert len(supports.joined(supports, None, 2).features) == 4


def test_of_equal_entropies_the_first_stay() -> None:
    supports = Supports.of(torch.arange(4.0)[:, None], torch.tensor([[1.0, 0]]).expand(4, 2))
    assert supports.joined(supports, 3, 2).features.flatten().tolist() == [0, 1, 2]
    assert supports.logits is None


def test_the_first_supports_are_the_rows_of_the_head() -> None:
    head = nn.Linear(4, 3)
    supports = initial_supports(Classifier(nn.Sequential(nn.Flatten(), head)), with_logits=True)
    assert torch.equal(supports.features, head.weight)
    assert supports.logits is not None
    torch.testing.assert_close(supports.logits, head(head.weight).detach())


def test_a_class_without_supports_has_the_lowest_cosine() -> None:
    cosines = prototype_cosines(torch.randn(5, 3), torch.tensor([[1.0, 2, 3], [0, 0, 0]]))
    assert (cosines[:, 1] == -1).all()
    assert (cosines[:, 0] > -1).all()


def test_a_number_of_supports_is_positive() -> None:
    assert supports_per_class(7, 10) == 7
    with pytest.raises(ttc.TTCError, match="positive number of samples per class"):
        supports_per_class(0, 10)


def test_a_sample_with_absurd_logits_becomes_no_support() -> None:
    logits = torch.tensor([[5.0, 0.0], [5e3, 0.0], [0.0, 60.0], [0.0, -1e20]])
    supports = Supports.plausible(torch.arange(4.0)[:, None], logits, with_logits=True)
    assert supports.features.flatten().tolist() == [0, 2]
    assert supports.labels.tolist() == [0, 1]
    assert supports.logits is not None
    assert torch.equal(supports.logits, logits[::2])
