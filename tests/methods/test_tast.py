"""TAST against a transcription of its steps, one projection at a time."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ttc


def project(heads: Any, e: int, v: Tensor) -> Tensor:
    projected: Tensor = ((v * heads.scale_in[e]) @ heads.weight.T) * heads.scale_out[e] + heads.shift[e]
    return projected


def head_logits(heads: Any, e: int, v: Tensor, supports: list[tuple[Tensor, int, float]]) -> Tensor:
    rows = torch.stack([project(heads, e, feature) for feature, _, _ in supports])
    labels = torch.tensor([label for _, label, _ in supports])
    prototypes = torch.stack([rows[labels == k].mean(0) for k in range(4)])
    return 10 * torch.cosine_similarity(project(heads, e, v)[:, None], prototypes[None], dim=2)


@pytest.mark.parametrize(("keep", "k", "steps"), [(100, 4, 1), (2, 3, 2)])
def test_tast_by_its_steps(keep: int, k: int, steps: int, model: nn.Module, stream: list[Tensor]) -> None:
    options: dict[str, Any] = {"heads": 3, "filter_size": keep, "neighbours": k, "steps": steps}
    adapter: Any = ttc.adapt(model, "tast", accelerate=False, **options)
    heads = copy.deepcopy(adapter.heads)
    optimizer = torch.optim.Adam(heads.parameters(), lr=1e-3)
    source = copy.deepcopy(model).eval()
    head = source.get_submodule("fc")

    def triples(features: Tensor) -> list[tuple[Tensor, int, float]]:
        log_p = head(features).log_softmax(1).detach()
        return [(f, int(row.argmax()), float(-(row.exp() * row).sum())) for f, row in zip(features, log_p, strict=True)]

    weight = head.weight
    assert isinstance(weight, Tensor)
    supports = triples(weight.detach())
    for batch in stream:
        with torch.no_grad():
            z = source.get_submodule("body")(batch).mean((2, 3))
        supports += triples(z)
        supports = [s for c in range(4) for s in sorted([s for s in supports if s[1] == c], key=lambda s: s[2])[:keep]]
        rows = torch.stack([feature for feature, _, _ in supports])
        for _ in range(steps):
            with torch.no_grad():
                near = torch.cosine_similarity(z[:, None], rows[None], dim=2).topk(k, 1).indices
                p = torch.stack([head_logits(heads, e, rows, supports).softmax(1) for e in range(3)])  # (E, S, K)
                hard = nn.functional.one_hot(p.argmax(2), 4).float()
                targets, outputs = hard[:, near].mean(2), p[:, near].mean((0, 2))
            loss = torch.zeros(())
            for e in range(3):
                log_q = head_logits(heads, e, z, supports).log_softmax(1)
                loss = loss + nn.functional.kl_div(log_q, targets[e], reduction="none").mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.testing.assert_close(adapter(batch).exp(), outputs, rtol=1e-4, atol=1e-5)


def test_with_one_neighbour_a_sample_labels_itself(model: nn.Module, stream: list[Tensor]) -> None:
    adapter: Any = ttc.adapt(model, "tast", neighbours=1, filter_size=None)
    heads = copy.deepcopy(adapter.heads)
    found = adapter(stream[0])
    with torch.no_grad():
        features = adapter.model(stream[0]).features
        supports = [(f, int(label), 0.0) for f, label in zip(*adapter.memory.supports[:2], strict=True)]
        expected = torch.stack([head_logits(heads, e, features, supports).softmax(1) for e in range(20)]).mean(0)
    torch.testing.assert_close(found.exp(), expected, rtol=1e-4, atol=1e-5)


def test_projections_follow_the_seed_and_come_back_on_reset(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "tast", seed=1)
    first = adapter(stream[0])
    adapter(stream[1])
    adapter.reset()
    assert torch.equal(adapter(stream[0]), first)
    assert not torch.equal(ttc.adapt(model, "tast", seed=2)(stream[0]), first)


def test_a_class_without_supports_is_never_predicted() -> None:
    head = nn.Linear(12, 3)
    with torch.no_grad():
        head.weight.copy_(torch.rand(3, 12, generator=torch.Generator().manual_seed(0)))
        head.bias.copy_(torch.tensor([50.0, 0.0, 0.0]))  # every row and every image is labelled 0
    found = ttc.adapt(nn.Sequential(nn.Flatten(), head), "tast")(torch.rand(4, 3, 2, 2))
    assert found.isfinite().all()
    assert (found.argmax(1) == 0).all()


@pytest.mark.parametrize("option", ["neighbours", "steps", "heads", "filter_size"])
def test_tast_rejects_a_count_of_zero(option: str, model: nn.Module) -> None:
    options: dict[str, Any] = {option: 0}
    with pytest.raises(ttc.TTCError, match=f"{option} is a positive number"):
        ttc.adapt(model, "tast", **options)
