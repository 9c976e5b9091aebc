"""ROID against a literal transcription of its steps, and its limits without its parts."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ttc
from tests.methods.transcription import with_batch_statistics
from ttc.clustering import Assignment, BatchAugmentation, ClusteringAdapter, batch_mean, default_optimizer
from ttc.core import Classifier, seeded_generator
from ttc.methods.roid import soft_likelihood_ratio
from ttc.nn import copy_with_trainable_norms


def unit(values: Tensor) -> Tensor:
    return (values - values.min()) / (values.max() - values.min())


def test_roid_by_its_steps(model: nn.Module, stream: list[Tensor]) -> None:
    network, theta = with_batch_statistics(model)
    start = [p.detach().clone() for p in theta]
    optimizer = torch.optim.Adam(theta, lr=1e-3)
    augment = BatchAugmentation(padding="reflect", blur=None, noise=0.0)
    adapter = ttc.adapt(model, "roid", accelerate=False, seed=5)
    average, sizes = torch.full((4,), 0.25), []
    for step, x in enumerate(stream * 2):
        logits = network(x)
        p = logits.softmax(1)
        with torch.no_grad():
            d = unit(1 - torch.cosine_similarity(average[None], p))
            c = unit((p * p.log()).sum(1))
            kept = d >= d.mean()
            w = torch.exp(3 * d * c)[kept]
            average = 0.9 * average + 0.1 * p.mean(0)
        sizes.append(int(kept.sum()))
        q = p.clamp(max=0.99)
        ratio = -(q * torch.log(q / (1 - q) + 1e-5)).sum(1)
        other = network(augment(x[kept], seeded_generator(5, step)))
        plain = logits[kept]
        one = -(plain.softmax(1) * other.log_softmax(1)).sum(1)
        two = -(other.softmax(1) * plain.log_softmax(1)).sum(1)
        loss = (w * ratio[kept]).sum() / 24 + (w * (one / 2 + two / 2)).sum() / 24
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        for now, old in zip(theta, start, strict=True):
            now.data.copy_(0.99 * now.data + 0.01 * old)
        prior = p.detach().mean(0)
        smooth = max(1 / 24, 1 / 4) / prior.max()
        expected = logits.detach() * (prior + smooth) / (1 + 4 * smooth)
        torch.testing.assert_close(adapter(x), expected, rtol=1e-5, atol=1e-5)
    assert all(0 < size < 24 for size in sizes)


def ratio_of(assignment: Assignment) -> Tensor:
    return soft_likelihood_ratio(assignment.logits)


BARE: dict[str, Any] = {"consistency": False, "prior_correction": None}


def test_without_its_parts_roid_is_tent_with_the_soft_likelihood_ratio(model: nn.Module, stream: list[Tensor]) -> None:
    roid = ttc.adapt(model, "roid", accelerate=False, weighting=False, ensemble_momentum=1.0, **BARE)
    prepared = copy_with_trainable_norms(Classifier(model))
    tent = ClusteringAdapter(prepared, default_optimizer(4), losses=(ratio_of,), reduce=batch_mean)
    assert all(torch.equal(roid(x), tent(x)) for x in stream * 2)


def test_with_nothing_but_the_source_mixed_in_roid_is_norm(model: nn.Module, stream: list[Tensor]) -> None:
    roid, norm = ttc.adapt(model, "roid", ensemble_momentum=0.0, prior_correction=None), ttc.adapt(model, "norm")
    assert all(torch.equal(roid(x), norm(x)) for x in stream * 2)


def test_the_soft_likelihood_ratio_is_entropy_and_its_complement() -> None:
    logits = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    p = logits.softmax(1)
    expected = -(p * p.log()).sum(1) + (p * (1 - p).log()).sum(1)
    torch.testing.assert_close(soft_likelihood_ratio(logits), expected, rtol=1e-3, atol=1e-4)


def test_the_prior_multiplies_probabilities(model: nn.Module, stream: list[Tensor]) -> None:
    plain = ttc.adapt(model, "roid", prior_correction=None).predict(stream[0]).softmax(1)
    found = ttc.adapt(model, "roid", prior_correction="probabilities").predict(stream[0]).softmax(1)
    smooth = 0.25 / plain.mean(0).max()
    expected = plain * (plain.mean(0) + smooth)
    torch.testing.assert_close(found, expected / expected.sum(1, keepdim=True))


def test_equal_samples_have_equal_weights(model: nn.Module, stream: list[Tensor]) -> None:
    """A batch of copies of one image has no range of diversity; it is learned from as without weighting."""
    x = stream[0][:1].repeat(6, 1, 1, 1)
    weighted, plain = (ttc.adapt(model, "roid", weighting=flag, **BARE) for flag in (True, False))
    for _ in range(2):
        torch.testing.assert_close(weighted(x), plain(x))


@pytest.mark.parametrize(("option", "value"), [("temperature", 0.0), ("ensemble_momentum", 2.0)])
def test_invalid_options_are_rejected(option: str, value: float, model: nn.Module) -> None:
    options: dict[str, Any] = {option: value}
    with pytest.raises(ttc.TTCError, match=option):
        ttc.adapt(model, "roid", **options)
