"""The adapter of methods that learn nothing."""

import torch
from torch import Tensor, nn

from ttc.core import Classifier, PredictOnly


def test_it_predicts_with_the_model_and_changes_nothing(model: nn.Module, stream: list[Tensor]) -> None:
    prepared = Classifier(model)
    adapter = PredictOnly(prepared)
    before = adapter.state_dict()
    assert torch.equal(adapter(stream[0]), prepared(stream[0]).logits)
    assert torch.equal(adapter.predict(stream[0]), adapter(stream[0]))
    after = adapter.state_dict()
    assert all(torch.equal(value, after["model"][name]) for name, value in before["model"].items())
