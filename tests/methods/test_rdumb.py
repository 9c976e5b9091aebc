"""RDumb against a literal transcription of its steps, and its limit without resets."""

import math

import pytest
import torch
from torch import Tensor, nn

import ttc
from tests.methods.transcription import with_batch_statistics


def transcription(source: nn.Module, stream: list[Tensor], period: int) -> list[Tensor]:
    limit, margin = 0.4 * math.log(4), 0.4 * math.sqrt(10 / 4)
    network, theta = with_batch_statistics(source)
    start = [p.detach().clone() for p in theta]
    outputs = []
    for step, x in enumerate(stream):
        if step % period == 0:
            average: Tensor | None = None
            optimizer = torch.optim.Adam(theta, lr=1e-3)
            for p, old in zip(theta, start, strict=True):
                p.data.copy_(old)
        logits = network(x)
        outputs.append(logits.detach())
        p, log_p = logits.softmax(1), logits.log_softmax(1)
        entropy = -(log_p.exp() * log_p).sum(1)
        chosen = entropy < limit
        if average is not None:
            chosen &= torch.cosine_similarity(average[None], p).abs() < margin
        if chosen.any():
            mean = p[chosen].mean(0).detach()
            average = mean if average is None else 0.9 * average + (1 - 0.9) * mean
            weights = torch.exp(limit - entropy.detach()) * chosen
            ((entropy * weights).sum() / chosen.sum()).backward()
            optimizer.step()
            optimizer.zero_grad()
    return outputs


@pytest.mark.parametrize("period", [1, 3, 1000])
def test_rdumb_by_its_steps(period: int, model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "rdumb", accelerate=False, period=period)
    for x, expected in zip(stream * 2, transcription(model, stream * 2, period), strict=True):
        assert torch.equal(adapter(x), expected)


def test_rdumb_without_resets_is_eta(model: nn.Module, stream: list[Tensor]) -> None:
    rdumb, eta = ttc.adapt(model, "rdumb", period=None), ttc.adapt(model, "eta")
    assert all(torch.equal(rdumb(batch), eta(batch)) for batch in stream * 2)


def test_small_batches_count_samples(model: nn.Module, stream: list[Tensor]) -> None:
    """With 200 samples per step a period of one resets after 200 samples, whatever the size of the batches."""
    images = torch.cat([*stream, *stream])

    def predict(size: int, count: int) -> Tensor:
        adapter = ttc.adapt(model, "rdumb", period=1, small_batches=True)
        for batch in images[:count].split(size):
            adapter(batch)
        return adapter.predict(stream[0])

    source = ttc.adapt(model, "rdumb", period=1, small_batches=True).predict(stream[0])
    assert all(torch.equal(predict(size, 200), source) for size in (1, 20, 100))
    assert not torch.equal(predict(20, 180), source)


def test_an_invalid_period_is_rejected(model: nn.Module) -> None:
    with pytest.raises(ttc.TTCError, match="period is a positive number of batches, or None for no reset, got 0"):
        ttc.adapt(model, "rdumb", period=0)
