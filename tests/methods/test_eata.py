"""EATA against a literal transcription of its steps, and its limit without the Fisher term."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ttc
from tests.methods.transcription import with_batch_statistics

Images = Callable[[int, float, int], tuple[Tensor, Tensor]]


def test_eata_by_its_steps(model: nn.Module, stream: list[Tensor], labelled: Images) -> None:
    source, _ = labelled(40, 0.3, 5)
    beta, rate = 3000.0, 0.05
    network, theta = with_batch_statistics(model)
    fisher = [torch.zeros_like(p) for p in theta]
    for images in (source[:16], source[16:32], source[32:]):
        logits = network(images)
        nn.functional.cross_entropy(logits, logits.argmax(1)).backward()
        for total, p in zip(fisher, theta, strict=True):
            assert p.grad is not None
            total += p.grad**2 / 3
            p.grad = None
    start = [p.detach().clone() for p in theta]
    optimizer = torch.optim.SGD(theta, lr=rate, momentum=0.9)
    adapter, unpenalized = (
        ttc.adapt(
            model,
            "eata",
            accelerate=False,
            source_images=source,
            fisher_weight=weight,
            fisher_batch_size=16,
            redundancy_margin=0.7,
            optimizer=partial(torch.optim.SGD, lr=rate, momentum=0.9),
        )
        for weight in (beta, 0.0)
    )
    average: Tensor | None = None
    limit = 0.4 * math.log(4)
    for batch in stream * 2:
        logits = network(batch)
        p, log_p = logits.softmax(1), logits.log_softmax(1)
        ent = -(log_p.exp() * log_p).sum(1)
        chosen = ent < limit
        if average is not None:
            chosen &= torch.cosine_similarity(average[None], p).abs() < 0.7
        if chosen.any():
            mean = p[chosen].mean(0).detach()
            average = mean if average is None else 0.9 * average + 0.1 * mean
            loss = (torch.exp(limit - ent.detach()) * ent)[chosen].mean()
            for f, now, old in zip(fisher, theta, start, strict=True):
                loss = loss + beta * (f * (now - old) ** 2).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.testing.assert_close(adapter(batch), logits.detach(), rtol=1e-5, atol=1e-5)
        free = unpenalized(batch)
    assert (free - logits.detach()).abs().max() > 1e-2  # so the penalty matters here


def test_eata_without_fisher_weight_is_eta(model: nn.Module, stream: list[Tensor]) -> None:
    eata = ttc.adapt(model, "eata", fisher_weight=0.0)  # and needs no source images
    eta = ttc.adapt(model, "eta")
    assert all(torch.equal(eata(batch), eta(batch)) for batch in stream * 2)


def test_the_penalty_holds_the_parameters_back(model: nn.Module, stream: list[Tensor], labelled: Images) -> None:
    def distance(weight: float) -> float:
        adapter = ttc.adapt(model, "eata", fisher_weight=weight, source_images=labelled(64, 0.3, 5)[0])
        for batch in stream * 4:
            adapter(batch)
        return sum(float((new - adapter.initial_tensors[name]).square().sum()) for name, new in trainable(adapter))

    assert distance(1e6) < 0.75 * distance(1e-6)


def trainable(adapter: ttc.Adapter) -> list[tuple[str, Tensor]]:
    return [(name, p.detach()) for name, p in adapter.model.named_parameters() if p.requires_grad]


def test_missing_source_images_are_asked_for(model: nn.Module) -> None:
    with pytest.raises(ttc.TTCError, match=r"'eata' needs source images.*source_images= \(about 2,000 clean images"):
        ttc.adapt(model, "eata")


def test_resuming_asks_for_the_same_source_images(
    model: nn.Module, stream: list[Tensor], labelled: Images, tmp_path: Path
) -> None:
    images = labelled(32, 0.3, 5)[0]
    adapter = ttc.adapt(model, "eata", source_images=images)
    adapter(stream[0])
    adapter.save(tmp_path / "eata.safetensors")
    with pytest.raises(ttc.TTCError, match=r"source_images=a tensor of shape \(32, 3, 8, 8\).*pass it again"):
        ttc.load_adaptation(model, tmp_path / "eata.safetensors")
    with pytest.raises(ttc.TTCError, match="the same options"):
        ttc.load_adaptation(model, tmp_path / "eata.safetensors", source_images=images.flip(0))
    resumed = ttc.load_adaptation(model, tmp_path / "eata.safetensors", source_images=images)
    assert torch.equal(resumed(stream[1]), adapter(stream[1]))
