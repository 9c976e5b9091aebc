"""Methods that one outlier would change for long: it leaves no trace until another confirms it."""

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.core.state import State

CAUTIOUS = ["delta", "rotta", "steady", "tesla", "adacontrast"]


def learned(adapter: ttc.Adapter) -> State:
    return {name: value for name, value in adapter.state_dict().items() if name != "check"}


@pytest.mark.parametrize("method", CAUTIOUS)
def test_a_far_batch_teaches_nothing_until_another_confirms_it(
    method: str, model: nn.Module, stream: list[Tensor]
) -> None:
    adapter = ttc.adapt(model, method)
    adapter(stream[0])
    before = learned(adapter)
    assert bool(adapter(stream[1] * 8).isfinite().all())
    torch.testing.assert_close(learned(adapter), before, rtol=0, atol=0)
    adapter(stream[2] * 8)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(learned(adapter), before, rtol=0, atol=0)


@pytest.mark.parametrize("method", CAUTIOUS)
def test_blank_images_never_teach_anything(method: str, model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, method)
    adapter(stream[0])
    before = adapter.state_dict()
    for _ in range(3):
        adapter(torch.zeros_like(stream[1]))
    torch.testing.assert_close(adapter.state_dict(), before, rtol=0, atol=0)


def test_vectors_are_not_blank() -> None:
    torch.manual_seed(0)
    adapter = ttc.adapt(nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)), "delta")
    before = learned(adapter)
    assert adapter(torch.rand(100, 5)).shape == (100, 3)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(learned(adapter), before, rtol=0, atol=0)
