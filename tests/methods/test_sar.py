"""SAR against a literal transcription of its steps, its limit at radius 0, and its recovery."""

import math
from collections.abc import Sequence
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import ttc
from tests.methods.transcription import with_batch_statistics
from ttc.methods.sar import SAR


def entropies(logits: Tensor) -> Tensor:
    return -(logits.softmax(1) * logits.log_softmax(1)).sum(1)


def transcription(
    source: nn.Module, stream: Sequence[Tensor], limit: float, rate: float, recovery: float
) -> tuple[list[Tensor], int]:
    network, theta = with_batch_statistics(source)
    start = [p.detach().clone() for p in theta]
    optimizer = torch.optim.SGD(theta, lr=rate, momentum=0.9)
    average, outputs, recoveries = None, [], 0
    for x in stream:
        logits = network(x)
        outputs.append(logits.detach())
        first = entropies(logits) < limit
        if not first.any():
            continue
        ascent = torch.autograd.grad(entropies(logits)[first].mean(), theta)
        norm = torch.cat([g.flatten() for g in ascent]).norm()
        here = [p.detach().clone() for p in theta]
        for p, g in zip(theta, ascent, strict=True):
            p.data += 0.05 * g / (norm + 1e-12)
        again = entropies(network(x))
        second = first & (again < limit)
        if second.any():
            loss = again[second].mean()
            average = loss.item() if average is None else 0.9 * average + 0.1 * loss.item()
            loss.backward()
        for p, old in zip(theta, here, strict=True):
            p.data.copy_(old)
        if second.any():
            optimizer.step()
            optimizer.zero_grad()
        if average is not None and average < recovery:
            average, recoveries = None, recoveries + 1
            for p, old in zip(theta, start, strict=True):
                p.data.copy_(old)
            optimizer = torch.optim.SGD(theta, lr=rate, momentum=0.9)
    return outputs, recoveries


@pytest.mark.parametrize(("recovery", "recovers"), [(0.0, False), (0.105, True)])
def test_sar_by_its_steps(recovery: float, recovers: bool, model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(
        model,
        "sar",
        accelerate=False,
        optimizer=partial(torch.optim.SGD, lr=0.1, momentum=0.9),
        recovery_threshold=recovery,
    )
    expected, recoveries = transcription(model, stream * 3, 0.4 * math.log(4), 0.1, recovery)
    assert (0 < recoveries < 10) == recovers
    for x, logits in zip(stream * 3, expected, strict=True):
        torch.testing.assert_close(adapter(x), logits, rtol=1e-5, atol=1e-5)


def test_sar_with_radius_0_is_selective_tent(model: nn.Module, stream: list[Tensor]) -> None:
    limit = 0.4 * math.log(4)
    network, theta = with_batch_statistics(model)
    optimizer = torch.optim.SGD(theta, lr=1e-3, momentum=0.9)
    adapter = ttc.adapt(model, "sar", accelerate=False, radius=0.0, recovery_threshold=None)
    for x in stream * 2:
        logits = network(x)
        entropy = entropies(logits)
        entropy[entropy < limit].mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.testing.assert_close(adapter(x), logits.detach(), rtol=1e-5, atol=1e-5)


def test_a_recovery_forgets_the_momentum_and_the_average(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "sar", recovery_threshold=1e9)  # recovers after every batch
    assert isinstance(adapter, SAR)
    first = adapter(stream[0])
    assert adapter.average_loss is None
    assert not adapter.updater.optimizer.state_dict()["state"]
    assert torch.equal(adapter(stream[0]), first)


def test_without_reliable_samples_nothing_moves(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "sar")
    assert isinstance(adapter, SAR)
    adapter(stream[0])
    adapter.entropy_margin = 0.0  # nothing is reliable: not even the momentum moves the parameters
    assert torch.equal(adapter(stream[1]), adapter(stream[1]))


def test_the_top_of_a_network_is_left_out(stream: list[Tensor]) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer1, self.layer4 = nn.BatchNorm2d(3), nn.BatchNorm2d(3)
            self.fc = nn.Linear(3, 4)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.fc(self.layer4(self.layer1(x).relu()).mean((2, 3)))
            return logits

    def trained(adapter: ttc.Adapter) -> list[str]:
        return [name for name, p in adapter.model.network.named_parameters() if p.requires_grad]

    assert trained(ttc.adapt(Net(), "sar")) == ["layer1.weight", "layer1.bias"]
    assert trained(ttc.adapt(Net(), "sar", trains="layer4".__eq__)) == ["layer4.weight", "layer4.bias"]
    with pytest.raises(ttc.TTCError, match="radius is the length of a perturbation"):
        ttc.adapt(Net(), "sar", radius=-1.0)
