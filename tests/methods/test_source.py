"""SOURCE."""

import copy

import torch
from torch import Tensor, nn

import ttc


def test_source_is_the_model_in_evaluation_mode(model: nn.Module, stream: list[Tensor]) -> None:
    reference = copy.deepcopy(model).eval()
    adapter = ttc.adapt(model, "source", accelerate=False)
    for batch in stream:
        assert torch.equal(adapter(batch), reference(batch))
