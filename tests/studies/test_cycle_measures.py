import pytest
import torch
from torch import nn

from tests.conftest import labelled_images
from ttc.core import Classifier
from ttc.studies.cycle_measures import entropy_gradient, gradient_spreads, neighbour_agreement, spread_of


def test_agreement_counts_the_nearest_and_not_the_sample_itself() -> None:
    features = torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, 0.3], [0.0, 1.0]])
    assert neighbour_agreement(features, torch.tensor([0, 0, 1, 1]), [1, 3]) == pytest.approx([0.75, 1 / 3])


def test_the_spread_is_relative_to_the_reference() -> None:
    vectors = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    assert spread_of(vectors, torch.tensor([0.0, 2.0])).spread == pytest.approx((4 / 3) ** 0.5 / 2)


def test_large_batches_have_stabler_gradients(model: nn.Module) -> None:
    images, _ = labelled_images(120, 1.2, 3)
    small, large = gradient_spreads(Classifier(model), images, (4, 64), entropy_gradient)
    assert large.spread < small.spread
    assert large.cosine == 1
