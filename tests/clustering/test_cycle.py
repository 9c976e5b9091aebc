"""Back-propagation through selected samples alone: the gradient with the batch's statistics held constant."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ttc
from ttc.models.cifar_resnet import CifarResNet
from ttc.nn.normalization import StatisticsNorm


class ConstantNorm(StatisticsNorm):
    """Normalizes with the batch's statistics, through which no gradient flows: an independent transcription."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            variance, mean = torch.var_mean(x, [0, 2, 3], correction=0)
        return F.batch_norm(x, mean, variance, self.weight, self.bias, False, 0.0, self.eps)


def with_constants(network: nn.Module) -> nn.Module:
    network = copy.deepcopy(network).eval().requires_grad_(False)
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.BatchNorm2d):
                constant = ConstantNorm(child)
                for parameter in constant.parameters():
                    parameter.requires_grad_(True)
                setattr(module, name, constant)
    return network


@pytest.mark.parametrize("accelerate", [True, False])
def test_it_is_the_gradient_with_constant_statistics(accelerate: bool) -> None:
    torch.manual_seed(0)
    network, stream = CifarResNet(20).double(), torch.rand(3, 10, 3, 32, 32, dtype=torch.float64)
    adapter = ttc.adapt(network, "ttc", propagate="selected", ga=False, accelerate=accelerate)
    literal = with_constants(network)
    optimizer = torch.optim.Adam([p for p in literal.parameters() if p.requires_grad], lr=1e-3)
    features: list[Tensor] = []
    literal.get_submodule("linear").register_forward_pre_hook(lambda module, inputs: features.append(inputs[0]))
    for batch in stream:
        features.clear()
        one, two = literal(batch), literal(batch.flip(3))
        fused = (one + two) / 2
        entropy = -(fused.softmax(1) * fused.log_softmax(1)).sum(1)
        chosen = entropy <= entropy.mean()
        kappa = torch.exp(-(features[0] - features[1]).square().sum(1) / 2).detach()
        (entropy + kappa * (one - two).square().sum(1))[chosen].mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.testing.assert_close(adapter(batch), fused.detach(), atol=1e-7, rtol=1e-6)


def test_no_activation_is_cached_between_batches() -> None:
    adapter = ttc.adapt(CifarResNet(20), "ttc", propagate="selected")
    adapter(torch.rand(6, 3, 32, 32))
    assert all(not module.kept for module in adapter.model.network.modules() if hasattr(module, "kept"))


@pytest.mark.parametrize("options", [{"views_together": True}, {"constrain": "all"}])
def test_it_needs_each_view_by_itself_and_selected_samples(options: dict[str, Any]) -> None:
    with pytest.raises(ttc.TTCError, match="learns from the selected samples alone"):
        ttc.adapt(CifarResNet(20), "ttc", propagate="selected", **options)


def test_propagate_is_all_or_selected() -> None:
    with pytest.raises(ttc.TTCError, match="propagate must be 'all' or 'selected', got 'some'"):
        ttc.adapt(CifarResNet(20), "ttc", propagate="some")


def test_it_does_not_go_with_other_statistics() -> None:
    with pytest.raises(ttc.TTCError, match="needs the statistics of the batch alone"):
        ttc.adapt(CifarResNet(20), "ttc", propagate="selected", small_batches=True)
