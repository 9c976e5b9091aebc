"""Replacing BatchNorm layers keeps what belongs to them, or says why it cannot."""

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.nn import BatchStatisticsNorm, SourceNorm, replace_batch_norms_, replace_norms_, source_statistics


def pooled(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))


class NormAct(nn.BatchNorm2d):
    """Normalization and activation in one layer, the activation a child, as timm's BatchNormAct2d."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.drop, self.act = nn.Identity(), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.act(self.drop(super().forward(x)))
        return out


class Scaled(nn.BatchNorm2d):
    """A BatchNorm with something of its own in the forward."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def test_a_norm_and_activation_layer_keeps_its_activation() -> None:
    model = pooled(nn.Conv2d(3, 4, 3), NormAct(4))
    plain = pooled(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    plain[0].load_state_dict(model[0].state_dict())  # type: ignore[index]
    plain[-1].load_state_dict(model[-1].state_dict())  # type: ignore[index]
    x = torch.rand(5, 3, 8, 8)
    for _ in range(2):
        torch.testing.assert_close(ttc.adapt(model, "tent")(x), ttc.adapt(plain, "tent")(x))


def test_a_batchnorm_with_a_forward_of_its_own_is_rejected() -> None:
    model = pooled(nn.Conv2d(3, 4, 3), Scaled(4))
    with pytest.raises(ttc.TTCError, match=r"the layer '1' \(Scaled\) is a BatchNorm with a forward of its own"):
        ttc.adapt(model, "tent")
    assert ttc.adapt(model, "source")(torch.rand(5, 3, 8, 8)).shape == (5, 3)


def test_layers_are_replaced_in_place() -> None:
    network = pooled(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    replace_norms_(network, source_statistics)
    assert type(network.get_submodule("1")) is nn.BatchNorm2d
    replace_norms_(network, BatchStatisticsNorm)
    weight = network.get_submodule("1").weight
    assert type(network.get_submodule("1")) is BatchStatisticsNorm
    replace_batch_norms_(network, SourceNorm)
    assert type(network.get_submodule("1")) is SourceNorm
    assert network.get_submodule("1").weight is weight
    assert not network.get_submodule("1").training
