"""The class prior against its equations, image by image, and what it makes of ordered and shuffled streams."""

import pytest
import torch
from torch import Tensor

from ttc import TTCError
from ttc.clustering import ClassPrior, correct_logits


def literal_prior(labels: list[Tensor], place: int, memory: float, strength: float, classes: int) -> Tensor:
    """The prior of one image from the labels of all others, as the equation is written."""
    total, weights = torch.full((classes,), strength / classes), strength
    for other, label in enumerate(labels):
        if other != place:
            weight = (1 - 1 / memory) ** abs(place - other)
            total, weights = total + weight * label, weights + weight
    return total / weights


def literal_hypothesis(p: list[Tensor], memory: float, strength: float, iterations: int) -> tuple[Tensor, float]:
    """The priors of a first batch under one hypothesis, and the evidence for it."""
    classes, places = len(p[0]), range(len(p))
    priors = [literal_prior(p, place, memory, strength, classes) for place in places]
    evidence = sum(float((classes * (one * prior).sum()).log()) for one, prior in zip(p, priors, strict=True))
    for _ in range(iterations):
        labels = [a * b / (a * b).sum() for a, b in zip(p, priors, strict=True)]
        priors = [literal_prior(labels, place, memory, strength, classes) for place in places]
    return torch.stack(priors), evidence


def test_one_batch_follows_the_equations() -> None:
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)) * 2
    prior = ClassPrior(3, memories=(4.0,), strengths=(0.5,), temperature=1.5, iterations=2, forget=1e9)
    found = prior(logits)
    p = list((logits / 1.5).softmax(1))
    near, evidence = literal_hypothesis(p, 4.0, 0.5, 2)
    long_run = [literal_hypothesis(p, 1000.0, strength, 2) for strength in (0.5, 3.0, 15.0)]
    start = torch.tensor([0.25, 0.5, *[0.25 / 3] * 3]).log()
    weight = (start + torch.tensor([0.0, evidence, *[one for _, one in long_run]])).softmax(0)
    torch.testing.assert_close(found, weight[0] / 3 + weight[1] * near + weight[2:].sum() * long_run[-1][0])
    assert prior.correlation == pytest.approx(float(weight[1]), abs=1e-5)


def test_later_batches_remember_the_labels_of_earlier_ones() -> None:
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(1)) * 2
    prior = ClassPrior(3, memories=(4.0,), strengths=(0.5,), iterations=1)
    for one in logits[:-1]:
        prior(one[None])
    near, long_run = 0.75 * prior.corrected[0], 0.999 * prior.corrected[-1]
    expected = [torch.full((3,), 1 / 3), (0.5 / 3 + near) / (0.5 + near.sum()), (5 + long_run) / (15 + long_run.sum())]
    found, weights = prior(logits[-1:])[0], prior.log_weights.exp()
    torch.testing.assert_close(
        found, weights[0] * expected[0] + weights[1] * expected[1] + weights[2:].sum() * expected[2]
    )


def test_a_biased_model_is_not_taken_for_a_stream_in_order() -> None:
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(100, (3000,), generator=generator)
    logits = 4 * torch.nn.functional.one_hot(labels, 100) + 1.5 * torch.randn(3000, 100, generator=generator)
    logits = logits + 1.5 * torch.randn(100, generator=generator)  # some of many classes are predicted far more often
    prior, found = ClassPrior(100), []
    for batch in logits.split(100):
        prior(batch)
        found.append(prior.correlation)
    assert sum(found[10:]) / 20 < 0.6


def stream(order: Tensor, accuracy: float, seed: int = 0) -> Tensor:
    """Logits of a classifier that is right with some probability and equally confident when it is wrong."""
    generator = torch.Generator().manual_seed(seed)
    right = torch.rand(len(order), generator=generator) < accuracy
    guess = torch.where(right, order, torch.randint(10, (len(order),), generator=generator))
    return 2.5 * torch.nn.functional.one_hot(guess, 10).float() + torch.randn(len(order), 10, generator=generator) * 0.5


def score(labels: Tensor, logits: Tensor, size: int) -> tuple[float, float, float]:
    """Accuracy as predicted, accuracy with the prior, and the correlation that was found."""
    prior = ClassPrior(10)
    corrected = torch.cat([correct_logits(batch, prior(batch)) for batch in logits.split(size)])
    plain, better = ((one.argmax(1) == labels).float().mean() for one in (logits, corrected))
    return float(plain), float(better), prior.correlation


@pytest.mark.parametrize("size", [1, 8, 100])
def test_ordered_streams_gain_and_shuffled_ones_lose_nothing(size: int) -> None:
    ordered = torch.arange(10).repeat_interleave(40)
    plain, better, correlation = score(ordered, stream(ordered, 0.7), size)
    assert better > plain + 0.1
    assert correlation > 0.99
    shuffled = ordered[torch.randperm(400, generator=torch.Generator().manual_seed(0))]
    plain, better, correlation = score(shuffled, stream(shuffled, 0.7), size)
    assert better > plain - 0.01
    assert correlation < 0.5


def test_without_update_nothing_is_remembered() -> None:
    prior, logits = ClassPrior(10), stream(torch.zeros(20, dtype=torch.long), 0.9)
    before = [prior.corrected.clone(), prior.plain.clone(), prior.log_weights.clone()]
    first = prior(logits, update=False)
    assert all(map(torch.equal, before, [prior.corrected, prior.plain, prior.log_weights]))
    assert torch.equal(prior(logits), first)
    assert not torch.equal(prior(logits), first)


def test_batches_beyond_a_chunk_give_a_prior_to_every_image() -> None:
    found = ClassPrior(10)(torch.randn(300, 10, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(found.sum(1), torch.ones(300))


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"memories": (1.0,)}, {"strengths": (0.0,)}])
def test_invalid_options_are_rejected(options: dict[str, object]) -> None:
    with pytest.raises(TTCError, match="class prior"):
        ClassPrior(10, **options)  # type: ignore[arg-type]


def test_a_damaged_state_is_rejected() -> None:
    prior = ClassPrior(3)
    state = {"corrected": prior.corrected, "plain": prior.plain, "log_weights": prior.log_weights}
    prior.check_state(state)
    with pytest.raises(ValueError, match="negative"):
        prior.check_state({**state, "plain": prior.plain - 1})
    with pytest.raises(ValueError, match="add up"):
        prior.check_state({**state, "log_weights": prior.log_weights + 1})
