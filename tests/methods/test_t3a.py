"""T3A against a transcription of its steps."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ttc


def features_of(model: nn.Module, x: Tensor) -> Tensor:
    body = model.get_submodule("body")(x)
    assert isinstance(body, Tensor)
    return body.mean((2, 3))


@pytest.mark.parametrize(("options", "keep"), [({}, 100), ({"filter_size": 3}, 3), ({"filter_size": None}, 10**9)])
def test_t3a_by_its_steps(options: dict[str, Any], keep: int, model: nn.Module, stream: list[Tensor]) -> None:
    reference = copy.deepcopy(model).eval()
    adapter = ttc.adapt(model, "t3a", **options)
    weight, bias = (tensor.detach() for tensor in reference.get_submodule("fc").parameters())

    def triples(features: Tensor) -> list[tuple[Tensor, int, float]]:
        logits = features @ weight.T + bias
        log_p = logits.log_softmax(1)
        entropy = -(log_p.exp() * log_p).sum(1)
        return [(f, int(row.argmax()), float(e)) for f, row, e in zip(features, logits, entropy, strict=True)]

    supports = triples(weight)
    for batch in stream:
        with torch.no_grad():
            features = features_of(reference, batch)
        supports += triples(features)
        supports = [s for k in range(4) for s in sorted([s for s in supports if s[1] == k], key=lambda s: s[2])[:keep]]
        prototypes = []
        for k in range(4):
            total = torch.stack([f / f.norm() for f, label, _ in supports if label == k]).sum(0)
            prototypes.append(total / total.norm())
        torch.testing.assert_close(adapter(batch), features @ torch.stack(prototypes).T, rtol=1e-4, atol=1e-5)
    if keep == 3:
        assert len(supports) == 12


def test_t3a_without_data_is_the_cosine_head() -> None:
    head = nn.Linear(12, 3, bias=False)
    model = nn.Sequential(nn.Flatten(), head)
    nn.init.orthogonal_(head.weight)  # every row is its own class
    adapter = ttc.adapt(model, "t3a", filter_size=1)
    x = torch.zeros(1, 3, 2, 2)
    x[0, 0, 0, 0] = 1e-6  # a feature too unsure to displace a row of the classifier
    unit = nn.functional.normalize(head.weight.detach())
    torch.testing.assert_close(adapter(x), x.flatten(1) @ unit.T)


def test_t3a_gives_a_class_without_supports_the_lowest_score() -> None:
    head = nn.Linear(12, 3)
    model = nn.Sequential(nn.Flatten(), head)
    with torch.no_grad():
        head.weight.fill_(0.1)
        head.bias.copy_(torch.tensor([1.0, 0.0, 0.0]))  # every row is labelled 0
    scores = ttc.adapt(model, "t3a")(torch.rand(4, 3, 2, 2))
    assert scores.isfinite().all()
    assert (scores.argmax(1) == 0).all()
    assert (scores[:, 1:] == torch.finfo(torch.float32).min).all()


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (0, "positive number of samples per class"),
        ("all", "filter_size must be a whole number, 'auto' or None, got 'all'"),
    ],
)
def test_t3a_rejects_a_senseless_filter(size: Any, message: str, model: nn.Module) -> None:
    with pytest.raises(ttc.TTCError, match=message):
        ttc.adapt(model, "t3a", filter_size=size)
