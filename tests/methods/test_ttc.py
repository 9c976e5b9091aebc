"""TTC and its sixteen combinations against a literal transcription of Algorithm 1, bit for bit."""

import copy
from itertools import compress, product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ttc
from tests.methods.transcription import Literal
from ttc.clustering import ClusteringAdapter

COMBINATIONS = list(product([False, True], repeat=4))


def name_of(flags: tuple[bool, ...]) -> str:
    name = "+".join(["tent", *compress(("rla", "spc", "ss", "ga"), flags)])
    return {"tent+rla+spc+ss+ga": "ttc"}.get(name, name)


@pytest.mark.parametrize("flags", COMBINATIONS, ids=name_of)
def test_sixteen_combinations_are_the_literal_algorithm(
    flags: tuple[bool, ...], model: nn.Module, stream: list[Tensor]
) -> None:
    literal, adapter = Literal(model, *flags), ttc.adapt(model, name_of(flags), accelerate=False)
    predictions = []
    for batch in stream * 4:
        predictions.append(adapter(batch))
        assert torch.equal(predictions[-1], literal(batch))
    assert not torch.equal(predictions[0], predictions[-5])  # it did learn in between


@pytest.mark.parametrize(
    ("options", "same"),
    [
        ({"loss_norm": "batch"}, False),
        ({"loss_norm": "selected"}, True),
        ({"accumulate": 9}, False),
        ({"accumulate": 8}, True),
        ({"samples_per_step": 300}, False),
        ({"accumulate_count": "samples"}, False),
        ({"accumulate_as": "mean"}, False),
        ({"counter_start": 0}, False),
        ({"select_on": "plain"}, False),
        ({"fuse": "probabilities"}, False),
        ({"spc_on": "probabilities"}, False),
        ({"spc_reduction": "mean"}, False),
        ({"detach_similarity": False}, False),
        ({"normalize_features": True}, False),
        ({"bandwidth": 2.0}, False),
        ({"spc_weight": 2.0}, False),
        ({"constrain": "all"}, False),
        ({"detach_neighbour": True}, False),
        ({"views_together": True}, False),
        ({"return_plain": True}, False),
        ({"lr_reference_batch": 48}, False),
        ({"view": ttc.clustering.vertical_flip}, False),
        ({"view": ttc.clustering.GaussianNoise(std=0.05)}, False),
        ({"inclusive": False}, True),  # differs only for a sample exactly at the mean
    ],
    ids=str,
)
def test_every_open_reading_is_an_option(
    options: dict[str, Any], same: bool, model: nn.Module, stream: list[Tensor]
) -> None:
    def sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.05)  # Adam would hide a scale

    plain, other = ttc.adapt(model, "ttc", optimizer=sgd), ttc.adapt(model, "ttc", optimizer=sgd, **options)
    pairs = [(plain(batch), other(batch)) for batch in stream * 4]
    assert all(torch.equal(one, two) for one, two in pairs) == same


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss_norm": "all"}, "loss_norm must be 'selected' or 'batch', got 'all'"),
        ({"fuse": "votes"}, "fuse must be 'logits' or 'probabilities'"),
        ({"constrain": "none"}, "constrain must be 'selected' or 'all'"),
        ({"select_on": "x"}, "select_on must be 'fused' or 'plain'"),
        ({"spc_on": "x"}, "spc_on must be 'logits' or 'probabilities'"),
        ({"spc_reduction": "x"}, "spc_reduction must be 'sum' or 'mean'"),
        ({"bandwidth": 0.0}, "bandwidth is positive"),
        ({"accumulate": 0}, "accumulate is a positive number, got 0"),
        ({"samples_per_step": -1}, "samples_per_step is a positive number"),
        ({"accumulate_count": "x"}, "accumulate_count must be 'batches' or 'samples'"),
        ({"accumulate_as": "x"}, "accumulate_as must be 'sum' or 'mean'"),
        ({"counter_start": 2}, "counter_start must be 1 or 0"),
    ],
    ids=str,
)
def test_an_option_out_of_range_is_rejected(options: dict[str, Any], message: str, model: nn.Module) -> None:
    with pytest.raises(ttc.TTCError, match=message):
        ttc.adapt(model, "ttc", **options)


def test_flip_symmetric_images_need_no_constraint(model: nn.Module, stream: list[Tensor]) -> None:
    class Symmetric(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = copy.deepcopy(model)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.inner((x + x.flip(3)) / 2)
            return logits

    with_spc, without = ttc.adapt(Symmetric(), "ttc"), ttc.adapt(Symmetric(), "tent+rla+ss+ga")
    plain = ttc.adapt(Symmetric(), "tent+ss+ga")
    for batch in stream * 2:
        prediction = with_spc(batch)
        assert torch.equal(prediction, without(batch))
        torch.testing.assert_close(prediction, plain(batch), rtol=1e-4, atol=1e-4)


def test_a_constant_model_stays_finite() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 7))
    nn.init.zeros_(model[-1].weight)  # type: ignore[arg-type]
    adapter = ttc.adapt(model, "ttc", accumulate=1)
    for _ in range(10):
        assert adapter(torch.rand(10, 3, 4, 4)).isfinite().all()


def test_two_equal_batches_step_twice_the_gradient(model: nn.Module, stream: list[Tensor]) -> None:
    def sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1)

    once, twice = (ttc.adapt(model, "ttc", optimizer=sgd, accumulate=every) for every in (1, 2))
    start = [parameter.clone() for parameter in once.model.parameters() if parameter.requires_grad]

    def moved(adapter: ttc.Adapter) -> list[Tensor]:
        now = [parameter for parameter in adapter.model.parameters() if parameter.requires_grad]
        return [(new - old).detach() for new, old in zip(now, start, strict=True)]

    once(stream[0])
    twice(stream[0])
    assert not any(step.any() for step in moved(twice))
    twice(stream[0])
    for one, two in zip(moved(once), moved(twice), strict=True):
        torch.testing.assert_close(two, 2 * one, rtol=1e-4, atol=1e-6)


def test_a_stored_neighbour_is_the_literal_algorithm(model: nn.Module, stream: list[Tensor]) -> None:
    options: dict[str, Any] = {"ss": False, "ga": False, "rla": False}
    adapter = ttc.adapt(model, "ttc", neighbour="memory", memory_size=40, accelerate=False, **options)
    literal = Literal(model, rla=False, spc=False, ss=False, ga=False)
    memory: list[tuple[Tensor, Tensor]] = []
    pairs = 0
    for batch in stream:
        logits, features = literal.forward(batch)
        log_p = logits.log_softmax(1)
        losses = list(-(log_p.exp() * log_p).sum(1))
        for i in range(len(batch)):
            same = [(f, y) for f, y in memory if y.argmax() == logits[i].argmax()]
            if same:
                near, other = min(same, key=lambda entry: float((features[i].detach() - entry[0]).square().sum()))
                kappa = torch.exp(-(features[i] - near).square().sum() / 2).detach()
                losses[i] = losses[i] + kappa * (logits[i] - other).square().sum()
                pairs += 1
        torch.stack(losses).mean().backward()
        literal.optimizer.step()
        literal.optimizer.zero_grad()
        memory = [*memory, *zip(features.detach(), logits.detach(), strict=True)][-40:]
        torch.testing.assert_close(adapter(batch), logits, rtol=1e-4, atol=1e-5)
    assert pairs > 20


def test_the_second_view_is_the_default_neighbour(model: nn.Module, stream: list[Tensor]) -> None:
    adapters = [ttc.adapt(model, "ttc"), ttc.adapt(model, "ttc", neighbour="view"), ttc.adapt(model, "ttc-memory")]
    found = [[adapter(batch) for batch in stream * 3] for adapter in adapters]
    assert all(torch.equal(one, other) for one, other in zip(found[0], found[1], strict=True))
    assert not all(torch.equal(one, other) for one, other in zip(found[0], found[2], strict=True))


def test_a_stored_neighbour_without_robust_labels_needs_one_pass(model: nn.Module) -> None:
    adapter = ttc.adapt(model, "tent+spc", neighbour="memory")
    assert isinstance(adapter, ClusteringAdapter)
    assert len(adapter.views) == 1
