import pytest
import torch

from ttc.clustering.reference import has_reference_assigners, kmeans, spectral
from ttc.errors import TTCError

pytestmark = pytest.mark.skipif(not has_reference_assigners(), reason="needs scikit-learn")


def blobs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(90) % 3
    features = 5 * torch.eye(3)[labels] + 0.3 * torch.randn(90, 3, generator=generator)
    predicted = torch.where(torch.arange(90) % 5 == 0, (labels + 1) % 3, labels)  # a fifth is wrong
    return features, labels, predicted


@pytest.mark.parametrize("assigner", [kmeans, spectral])
def test_separate_clusters_correct_wrong_predictions(assigner) -> None:  # type: ignore[no-untyped-def]
    features, labels, predicted = blobs()
    assert not torch.equal(predicted, labels)
    assert torch.equal(assigner(features, predicted), labels)


def test_classes_that_are_not_predicted_get_no_cluster() -> None:
    features, labels, _ = blobs()
    found = kmeans(features, torch.where(labels == 2, 7, 4))
    assert set(found.tolist()) == {4, 7}


@pytest.mark.parametrize("assigner", [kmeans, spectral])
def test_too_few_classes_are_rejected(assigner) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(
        TTCError, match=r"clustering needs two classes or more .*, got 90 samples predicted as 1 classes"
    ):
        assigner(blobs()[0], torch.zeros(90, dtype=torch.long))
