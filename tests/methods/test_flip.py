"""The flip controls."""

import pytest
import torch
from torch import Tensor, nn

import ttc


@pytest.mark.parametrize("base", ["source", "norm", "tent"])
def test_flip_controls_adapt_as_their_base(base: str, model: nn.Module, stream: list[Tensor]) -> None:
    plain, control = ttc.adapt(model, base, accelerate=False), ttc.adapt(model, f"{base}+flip", accelerate=False)
    for batch in stream:
        with torch.no_grad():
            mirrored = plain.model(batch.flip(3)).logits  # before the update
        assert torch.equal(control(batch), (plain(batch) + mirrored) / 2)
