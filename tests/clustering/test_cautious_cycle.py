"""Algorithm 1 with caution: without outliers it is Algorithm 1."""

import copy

import torch
from torch import Tensor, nn

from ttc.clustering import ClusteringAdapter, default_optimizer
from ttc.clustering.cautious_cycle import CautiousClusteringAdapter
from ttc.core import Classifier
from ttc.nn import copy_with_trainable_norms


def test_without_outliers_it_is_the_clustering_adapter(model: nn.Module, stream: list[Tensor]) -> None:
    cautious, plain = (
        kind(copy_with_trainable_norms(Classifier(copy.deepcopy(model))), default_optimizer(4))
        for kind in (CautiousClusteringAdapter, ClusteringAdapter)
    )
    for batch in stream:
        assert torch.equal(cautious(batch), plain(batch))


def test_a_far_batch_changes_no_parameter(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = CautiousClusteringAdapter(copy_with_trainable_norms(Classifier(model)), default_optimizer(4))
    adapter(stream[0])
    before = adapter.state_dict()["model"]
    adapter(stream[1] * 8)
    torch.testing.assert_close(adapter.state_dict()["model"], before, rtol=0, atol=0)
