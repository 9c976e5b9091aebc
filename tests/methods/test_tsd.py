"""TSD against a literal transcription of its steps, and its limits."""

import copy
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import ttc


class Stored(NamedTuple):
    """One entry of the literal memory."""

    feature: Tensor
    probability: Tensor
    label: int
    entropy: float


def entries(features: Tensor, logits: Tensor) -> list[Stored]:
    found = []
    for feature, row in zip(features.detach(), logits.detach(), strict=True):
        p = row.softmax(0)
        found.append(Stored(feature, p, int(row.argmax()), float(-(p * row.log_softmax(0)).sum())))
    return found


@pytest.mark.parametrize(("weight", "consistent", "keep"), [(0.1, True, 100), (1.0, False, 3), (0.0, True, 5)])
def test_tsd_is_the_literal_algorithm(
    weight: float, consistent: bool, keep: int, model: nn.Module, stream: list[Tensor]
) -> None:
    literal = copy.deepcopy(model).eval()
    for module in literal.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.track_running_stats, module.running_mean, module.running_var = False, None, None
    optimizer = torch.optim.Adam(literal.parameters(), lr=1e-4)
    adapter = ttc.adapt(
        model, "tsd", alignment=weight, consistent=consistent, filter_size=keep, neighbours=2, accelerate=False
    )
    head: Any = literal.get_submodule("fc")
    memory = entries(head.weight, head(head.weight))
    dropped = 0
    for batch in stream:
        z = literal.get_submodule("body")(batch).mean((2, 3))
        logits = head(z)
        memory += entries(z, logits)
        memory = [
            m for k in range(4) for m in sorted([m for m in memory if m.label == k], key=lambda m: m.entropy)[:keep]
        ]
        prototypes = [
            sum((m.feature / m.feature.norm() for m in memory if m.label == k), torch.zeros(16)) for k in range(4)
        ]
        y = torch.cosine_similarity(z[:, None], torch.stack(prototypes)[None], dim=2).softmax(1)
        p = logits.softmax(1)
        distilled = [
            -(p[i].detach() * y[i].log()).sum()
            for i in range(len(batch))
            if not consistent or y[i].argmax() == p[i].argmax()
        ]
        dropped += len(batch) - len(distilled)
        loss = torch.stack(distilled).mean()
        rows = torch.stack([m.feature for m in memory])
        pairs = []
        for i in range(len(batch)):
            cosines = torch.cosine_similarity(z[i].detach()[None], rows)
            near = cosines.topk(2).indices.tolist()
            pairs += [cosines[j] * (p[i] - memory[j].probability).square().sum() for j in near]
        loss = loss + weight * torch.stack(pairs).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(adapter(batch), logits, rtol=1e-4, atol=1e-5)
    assert (dropped > 0) == consistent


def test_tsd_without_a_step_is_norm(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "tsd", optimizer=partial(torch.optim.SGD, lr=0.0))
    norm = ttc.adapt(model, "norm")
    for batch in stream:
        torch.testing.assert_close(adapter(batch), norm(batch))


def test_tsd_on_norms_leaves_the_rest(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "tsd", trains="norm affine")
    for batch in stream:
        adapter(batch)
    kernel, moved = (m.get_submodule("body.0").weight for m in (model, adapter.model.network))
    assert isinstance(kernel, Tensor)
    assert isinstance(moved, Tensor)
    assert torch.equal(kernel, moved)


def test_the_memory_is_bounded(model: nn.Module, stream: list[Tensor]) -> None:
    adapter: Any = ttc.adapt(model, "tsd", filter_size=2)
    for batch in stream:
        adapter(batch)
    assert len(adapter.memory.supports.features) <= 8


def test_tsd_rejects_no_neighbours(model: nn.Module) -> None:
    with pytest.raises(ttc.TTCError, match="neighbours is a positive number, got 0"):
        ttc.adapt(model, "tsd", neighbours=0)
