"""What three networks predict for a batch and its flip."""

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.deploy.flip_comparison import compare_with_source
from ttc.nn import blended_copy, source_classifier


@pytest.mark.parametrize("small", [False, True, "window"])
def test_a_comparison_changes_no_adapter(small: bool | str, model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "ttc", small_batches=small)
    source = source_classifier(adapter)
    blended = blended_copy(source, alpha=0.25, source_pseudo_count=150)
    assert blended is not None
    adapter(stream[0])
    before = adapter.state_dict()
    found = compare_with_source(adapter, source, blended, stream[0])
    assert found is not None
    torch.testing.assert_close(adapter.state_dict(), before, rtol=0, atol=0)
    for pair, classifier in ((found.source, source), (found.blended, blended)):
        assert torch.equal(pair.logits, classifier(stream[0]).logits)
        flipped = classifier(stream[0].flip(-1)).logits
        torch.testing.assert_close(pair.consistency, (pair.logits.softmax(1) * flipped.softmax(1)).sum(1))
    assert not torch.allclose(found.source.logits, found.blended.logits)
    if small == "window":
        return  # rejects what follows by itself
    with torch.no_grad():
        next(p for p in adapter.model.parameters() if p.requires_grad).fill_(float("nan"))
    assert compare_with_source(adapter, source, blended, stream[0]) is None


def test_without_statistics_to_blend_the_source_stands_for_the_blend(stream: list[Tensor]) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(stream[0][0].numel(), 8), nn.LayerNorm(8), nn.Linear(8, 5))
    adapter = ttc.adapt(network, "tent")
    source = source_classifier(adapter)
    assert blended_copy(source, alpha=0.25, source_pseudo_count=150) is None
    found = compare_with_source(adapter, source, None, stream[0])
    assert found is not None
    assert found.blended is found.source
