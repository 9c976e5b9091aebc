"""Methods that one outlier would change for long: it leaves no trace until another confirms it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.core.cautious import CautiousAdapter
from ttc.core.state import State

CAUTIOUS = ["delta", "rotta", "steady", "tesla", "adacontrast", "shot-im"]


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
@pytest.mark.filterwarnings("ignore:the images have values")
def test_a_first_batch_that_the_next_two_contradict_is_forgotten(
    method: str, model: nn.Module, stream: list[Tensor]
) -> None:
    disturbed, undisturbed = (ttc.adapt(model, method) for _ in range(2))
    disturbed(stream[0] * 8)
    for batch in stream[1:3]:
        assert torch.equal(disturbed(batch), undisturbed(batch))
    torch.testing.assert_close(learned(disturbed), learned(undisturbed), rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:the images have values")
def test_the_second_batch_waits_in_a_saved_file_too(model: nn.Module, stream: list[Tensor], tmp_path: Path) -> None:
    adapter, resumed = (ttc.adapt(model, "delta") for _ in range(2))
    adapter(stream[0] * 8)
    adapter(stream[1])
    adapter.save(tmp_path / "waiting.safetensors")
    resumed.load(tmp_path / "waiting.safetensors")
    assert torch.equal(resumed(stream[2]), adapter(stream[2]))
    torch.testing.assert_close(resumed.state_dict(), adapter.state_dict(), rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:the images have values")
def test_a_rejected_batch_changes_nothing_where_the_first_would_be_forgotten(
    model: nn.Module, stream: list[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter: Any = ttc.adapt(model, "delta")
    adapter(stream[0] * 8)
    before = adapter.state_dict()

    def reject(x: Tensor) -> Tensor:
        raise ttc.TTCError("rejected")

    monkeypatch.setattr(adapter, "learn", reject)
    with pytest.raises(ttc.TTCError, match="rejected"):
        adapter(stream[1])
    torch.testing.assert_close(adapter.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize("method", CAUTIOUS)
def test_streams_without_outliers_are_predicted_as_without_the_check(
    method: str, model: nn.Module, stream: list[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    cautious, plain = (ttc.adapt(model, method) for _ in range(2))
    found = [cautious(batch) for batch in stream[:4]]
    monkeypatch.setattr(CautiousAdapter, "adapt", lambda self, x: self.learn(x))
    assert all(torch.equal(plain(batch), logits) for batch, logits in zip(stream, found, strict=False))


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
