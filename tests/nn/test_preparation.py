"""Prepared copies: what is trainable, what is shared, and that the original is not changed."""

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.core import Classifier
from ttc.nn import (
    BlendNorm,
    SourceNorm,
    blended_copy,
    copy_with_trainable_norms,
    copy_with_trainable_parameters,
    frozen_copy,
    source_classifier,
)


def test_preparations_copy(model: nn.Module) -> None:
    classifier = Classifier(model)
    trainable, frozen = copy_with_trainable_norms(classifier), frozen_copy(classifier)
    assert sum(parameter.numel() for parameter in trainable.parameters() if parameter.requires_grad) == 48
    assert not any(parameter.requires_grad for parameter in [*frozen.parameters(), *classifier.parameters()])
    storages = [{p.data_ptr() for p in m.parameters()} for m in (classifier, trainable, frozen)]
    assert not storages[0] & storages[1]
    assert not storages[0] & storages[2]


def test_all_parameters_but_those_of_the_head(model: nn.Module) -> None:
    classifier = Classifier(model)
    every, backbone = copy_with_trainable_parameters(classifier), copy_with_trainable_parameters(classifier, head=False)
    assert all(parameter.requires_grad for parameter in every.parameters())
    assert {name for name, p in backbone.named_parameters() if not p.requires_grad} == {
        "network.fc.weight",
        "network.fc.bias",
    }
    assert not any(parameter.requires_grad for parameter in classifier.parameters())


def test_nothing_to_train_is_an_error() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    with pytest.raises(ttc.TTCError, match="no normalization layer with scale and shift to adapt; use 't3a'"):
        ttc.adapt(network, "tent")


@pytest.mark.parametrize("method", ["norm", "tent", "tipi", "ttc"])
def test_the_source_classifier_is_the_model_as_it_was(method: str, model: nn.Module, stream: list[Tensor]) -> None:
    adapter, expected = ttc.adapt(model, method), ttc.adapt(model, "source")
    for batch in stream[:3]:
        adapter(batch)
    source = source_classifier(adapter)
    torch.testing.assert_close(source(stream[3]).logits, expected(stream[3]), atol=1e-5, rtol=1e-5)
    assert sum(isinstance(layer, SourceNorm) for layer in source.modules()) == 2
    assert not any(parameter.requires_grad for parameter in source.parameters())
    shared = {p.data_ptr() for p in source.parameters()} & {p.data_ptr() for p in adapter.model.parameters()}
    assert bool(shared)


def test_a_batch_counts_less_from_layer_to_layer_of_a_blended_copy() -> None:
    blocks = [layer for _ in range(3) for layer in (nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3))]
    network = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))
    blended = blended_copy(source_classifier(ttc.adapt(network, "tent")), alpha=0.8, source_pseudo_count=10)
    assert blended is not None
    layers = [layer for layer in blended.modules() if isinstance(layer, BlendNorm)]
    assert [layer.alpha for layer in layers] == [0.8, 0.8 * 0.25, 0.0]
    assert {layer.source_pseudo_count for layer in layers} == {10}
