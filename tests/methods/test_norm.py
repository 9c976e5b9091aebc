"""NORM and its variants against transcriptions of their steps."""

import copy

import pytest
import torch
from torch import Tensor, nn

import ttc


def batch_norms(model: nn.Module) -> list[nn.BatchNorm2d]:
    return [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]


def test_norm_is_batchnorm_alone_in_training_mode(model: nn.Module, stream: list[Tensor]) -> None:
    reference = copy.deepcopy(model).eval()
    for module in batch_norms(reference):
        module.train()
    adapter = ttc.adapt(model, "norm", accelerate=False)
    for batch in stream:
        assert torch.equal(adapter(batch), reference(batch))


def test_norm_without_batchnorm_is_source() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    )
    x = torch.rand(4, 3, 8, 8)
    assert torch.equal(ttc.adapt(model, "norm")(x), ttc.adapt(model, "source")(x))


@pytest.mark.parametrize("momentum", [0.1, 0.5])
def test_norm_ema_follows_then_predicts(momentum: float, model: nn.Module, stream: list[Tensor]) -> None:
    reference = copy.deepcopy(model).eval()
    for module in batch_norms(reference):
        module.momentum = momentum
    adapter = ttc.adapt(model, "norm-ema", momentum=momentum)
    for batch in stream:
        with torch.no_grad():
            for module in batch_norms(reference):
                module.train()
            reference(batch)
            expected = reference.eval()(batch)
        torch.testing.assert_close(adapter(batch), expected)


def test_norm_ema_rejects_a_weight_out_of_range(model: nn.Module) -> None:
    with pytest.raises(ttc.TTCError, match=r"momentum is the weight of a new batch and lies in \[0, 1\], got 2"):
        ttc.adapt(model, "norm-ema", momentum=2)


def test_norm_blend_defaults_to_sixteen_source_images(model: nn.Module, stream: list[Tensor]) -> None:
    default, explicit = ttc.adapt(model, "norm-blend"), ttc.adapt(model, "norm-blend", alpha=24 / (24 + 16))
    torch.testing.assert_close(default(stream[0]), explicit(stream[0]))
