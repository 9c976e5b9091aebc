"""TENT."""

import torch
from torch import Tensor, nn

import ttc


def test_all_switches_off_is_tent(model: nn.Module, stream: list[Tensor]) -> None:
    tent, off = ttc.adapt(model, "tent"), ttc.adapt(model, "ttc", rla=False, spc=False, ss=False, ga=False)
    for batch in stream:
        assert torch.equal(tent(batch), off(batch))
