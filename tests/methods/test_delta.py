"""DELTA against a literal transcription of its two parts, and against TENT and ETA without them."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.clustering import ClusteringAdapter


class LiteralRenorm(nn.Module):
    """Test-time batch renormalization of (N, C, H, W) as its equations are written."""

    def __init__(self, layer: nn.BatchNorm2d) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = layer.weight, layer.bias, layer.eps
        self.mean: Tensor | None = None
        self.std: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean((0, 2, 3), keepdim=True)
        std = ((x - mean).square().mean((0, 2, 3), keepdim=True) + self.eps).sqrt()
        if self.mean is None or self.std is None:
            self.mean, self.std = mean.detach(), std.detach()
        r, d = std.detach() / self.std, (mean.detach() - self.mean) / self.std
        y = ((x - mean) / std * r + d) * self.weight.view(1, -1, 1, 1) + self.bias.view(1, -1, 1, 1)
        self.mean = 0.95 * self.mean + 0.05 * mean.detach()
        self.std = 0.95 * self.std + 0.05 * std.detach()
        return y


def literal_network(model: nn.Module) -> tuple[nn.Module, list[Tensor]]:
    network = copy.deepcopy(model).eval().requires_grad_(False)
    for name, module in list(network.named_modules()):
        if isinstance(module, nn.BatchNorm2d):
            network.set_submodule(name, LiteralRenorm(module))
    parameters = [p for m in network.modules() if isinstance(m, LiteralRenorm) for p in (m.weight, m.bias)]
    return network, [parameter.requires_grad_(True) for parameter in parameters]


@pytest.mark.parametrize("on", ["tent", "eta"])
def test_delta_is_the_literal_algorithm(on: Any, model: nn.Module, stream: list[Tensor]) -> None:
    network, parameters = literal_network(model)
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    adapter = ttc.adapt(model, "delta", on=on, accelerate=False)
    z, average = torch.full((4,), 0.25), None
    limit, margin = 0.4 * math.log(4), 0.4 * math.sqrt(10 / 4)
    for batch in stream * 2:
        logits = network(batch)
        log_p = logits.log_softmax(1)
        entropy = -(log_p.exp() * log_p).sum(1)
        p = logits.detach().softmax(1)
        weights = 1 / (z[p.argmax(1)] + 1e-6)
        weights = weights * len(batch) / weights.sum()
        chosen = torch.ones(len(batch), dtype=torch.bool)
        if on == "eta":
            chosen = entropy.detach() < limit
            if average is not None:
                chosen = chosen & (torch.cosine_similarity(average[None], p).abs() < margin)
            weights = weights * torch.exp(limit - entropy.detach())
            if chosen.any():
                new = p[chosen].mean(0)
                average = new if average is None else 0.9 * average + 0.1 * new
        if chosen.any():
            loss = (weights * entropy)[chosen].mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        z = 0.95 * z + 0.05 * p.mean(0)
        torch.testing.assert_close(adapter(batch), logits, rtol=1e-4, atol=1e-5)
    assert (z - 0.25).abs().max() > 0.01  # the weights did something


@pytest.mark.parametrize("on", ["tent", "eta"])
def test_delta_without_its_parts_is_the_base_method(on: Any, model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "delta", on=on, renormalize=False, reweight=False)
    base = ttc.adapt(model, on)
    for batch in stream:
        assert torch.equal(adapter(batch), base(batch))


def test_the_first_batch_is_normalized_as_in_norm(model: nn.Module, stream: list[Tensor]) -> None:
    found, norm = ttc.adapt(model, "delta")(stream[0]), ttc.adapt(model, "norm")(stream[0])
    torch.testing.assert_close(found, norm, rtol=1e-5, atol=1e-5)


def test_small_batches_weight_without_a_batch_to_scale_over(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "delta", small_batches=True)
    assert isinstance(adapter, ClusteringAdapter)
    seen: list[Tensor] = []
    adapter.observer = lambda step: seen.append(step.weights)
    for image in torch.cat(stream)[:60]:
        adapter(image[None])
    weights = torch.cat(seen)
    assert weights[0] == pytest.approx(1, abs=1e-4)
    assert weights.std() > 0.05


@pytest.mark.parametrize("option", ["decay", "frequency_decay"])
def test_delta_rejects_a_decay_outside_its_range(option: str, model: nn.Module) -> None:
    options: dict[str, Any] = {option: 1.5}
    with pytest.raises(ttc.TTCError, match=r"lies in \[0, 1\], got 1.5"):
        ttc.adapt(model, "delta", **options)
