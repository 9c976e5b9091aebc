"""Reduced precision: each method works in it, or rejects it with the reason and changes nothing."""

import copy
import warnings

import pytest
import torch
from torch import Tensor, nn

import ttc

METHODS = ["source", "norm", "norm-blend", "norm-ema", "t3a", "tent", "eta", "tipi", "ttc"]
KINDS: dict[int, tuple[type[nn.Module], ...]] = {
    1: (nn.Conv1d, nn.BatchNorm1d, nn.InstanceNorm1d, nn.AdaptiveAvgPool1d),
    2: (nn.Conv2d, nn.BatchNorm2d, nn.InstanceNorm2d, nn.AdaptiveAvgPool2d),
    3: (nn.Conv3d, nn.BatchNorm3d, nn.InstanceNorm3d, nn.AdaptiveAvgPool3d),
}


def network(dimensions: int = 2, *, instance: bool = False) -> nn.Module:
    torch.manual_seed(0)
    conv, batch, instances, pool = KINDS[dimensions]
    norm = instances(8, affine=True) if instance else batch(8)
    return nn.Sequential(conv(3, 8, 3), norm, nn.ReLU(), pool(1), nn.Flatten(), nn.Linear(8, 5)).eval()


def images(dimensions: int = 2) -> Tensor:
    return torch.rand(24, 3, *[6] * dimensions, generator=torch.Generator().manual_seed(1))


def run(adapter: ttc.Adapter, x: Tensor) -> None:
    """Five calls: every prediction is finite, whatever the optimizer does in this precision."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "a step of the optimizer|the gradient of a batch")
        for _ in range(5):
            assert bool(adapter(x).isfinite().all())
    assert bool(adapter.predict(x).isfinite().all())


@pytest.mark.parametrize("method", METHODS)
def test_inside_autocast(method: str) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        run(ttc.adapt(network(), method), images())


@pytest.mark.parametrize("instance", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_a_float16_model(method: str, instance: bool) -> None:
    run(ttc.adapt(network(instance=instance).half(), method), images().half())


@pytest.mark.parametrize("method", METHODS)
def test_a_float16_model_inside_autocast_is_rejected_with_the_reason(method: str) -> None:
    adapter = ttc.adapt(network().half(), method)
    before = copy.deepcopy(adapter.state_dict())
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(ttc.TTCError, match=r"float16 inside torch\.autocast to another type"),
    ):
        adapter(images().half())
    torch.testing.assert_close(adapter.state_dict(), before, rtol=0, atol=0)
    run(adapter, images().half())


@pytest.mark.parametrize("policy", ["window", "average", "blend"])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("method", ["norm", "tent", "tipi"])
def test_autocast_with_small_batches(method: str, dimensions: int, policy: str) -> None:
    run(ttc.adapt(network(dimensions), method, autocast=True, small_batches=policy), images(dimensions))


def test_tipi_restores_its_state_if_the_updated_model_is_not_finite(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "tipi")
    adapter(stream[0])
    before = copy.deepcopy(adapter.state_dict())
    adapter._predicted = lambda x: torch.full((len(x), 4), float("nan"))  # type: ignore[attr-defined]
    with pytest.raises(ttc.TTCError, match="not finite"):
        adapter(stream[1])
    torch.testing.assert_close(adapter.state_dict(), before, rtol=0, atol=0)
