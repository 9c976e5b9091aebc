"""Which model is to predict: evidence from both, changes of the stream, repeated images."""

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.deploy import Limits
from ttc.deploy.arbiter import Arbiter, FlipComparison, compare_with_source, count_distinct
from ttc.nn import source_classifier

CLASSES = 4


def comparison(source: float, adapted: float, images: int = 50, classes: int = CLASSES) -> FlipComparison:
    """Consistencies, with predictions of both models spread over the first ``classes``."""
    spread = 0.1 * torch.linspace(-1, 1, images)
    logits = 9 * nn.functional.one_hot(torch.arange(images) % classes, CLASSES).float()
    even = 9 * nn.functional.one_hot(torch.arange(images) % CLASSES, CLASSES).float()
    return FlipComparison(logits, logits * 0.9, even, even * 0.8, source + spread, adapted - spread)


def mean_probability(*logits: Tensor) -> Tensor:
    return torch.stack([one.softmax(1) for one in logits]).mean(0)


def judged(arbiter: Arbiter, batch: FlipComparison) -> str | None:
    return arbiter.judge(batch, batch.adapted_logits)


def test_the_more_consistent_model_is_preferred_from_the_first_batch_on() -> None:
    arbiter = Arbiter(Limits(), 300, CLASSES)
    assert judged(arbiter, comparison(0.5, 0.7)) is None
    assert not arbiter.prefers_source
    other = Arbiter(Limits(), 300, CLASSES)
    reason = "the source model predicts: the lead of the source in flip consistency is 0.17, above 0.02"
    assert judged(other, comparison(0.7, 0.5)) == reason
    assert other.prefers_source


def test_ten_images_of_doubt_are_the_sources() -> None:
    arbiter = Arbiter(Limits(), 300, CLASSES)
    judged(arbiter, comparison(0.6, 0.601, images=1))
    assert arbiter.prefers_source
    for _ in range(40):
        judged(arbiter, comparison(0.6, 0.601, images=1))
    assert not arbiter.prefers_source


def test_a_change_of_the_stream_counts_at_once_and_chance_does_not() -> None:
    arbiter = Arbiter(Limits(), 300, CLASSES)
    for lead in (0.2, 0.18, 0.25, 0.15, 0.21, 0.2, 0.2):
        judged(arbiter, comparison(0.5, 0.5 + lead))
    consistencies = [(0.5, 0.6), (0.7, 0.4), (0.5, 0.7)]
    news = [judged(arbiter, comparison(*pair)) for pair in consistencies]
    assert [one and one.split(" predicts")[0] for one in news] == [None, "the source model", "the adapted model"]


def test_spreading_what_the_source_assigns_to_one_class_takes_more_evidence() -> None:
    spread, concentrated = Arbiter(Limits(), 300, CLASSES), Arbiter(Limits(), 300, CLASSES)
    judged(spread, comparison(0.5, 0.55))
    judged(concentrated, comparison(0.5, 0.55, classes=1))
    assert not spread.prefers_source
    assert concentrated.prefers_source


def test_only_a_consistent_source_predicts_alone() -> None:
    arbiter, batch = Arbiter(Limits(), 300, CLASSES), comparison(0.7, 0.4, classes=2)
    judged(arbiter, batch)
    assert torch.equal(arbiter.fuse(batch, batch.adapted_logits), batch.source_logits)
    arbiter, batch = Arbiter(Limits(), 300, CLASSES), comparison(0.4, 0.2, classes=2)
    judged(arbiter, batch)
    adapted = mean_probability(batch.adapted_logits, batch.adapted_flipped)
    both = (0.4**3 * mean_probability(batch.source_logits, batch.source_flipped) + 0.2**3 * adapted) / (0.4**3 + 0.2**3)
    torch.testing.assert_close(arbiter.fuse(batch, batch.adapted_logits).softmax(1), both)


@pytest.mark.parametrize(("lead", "alone"), [(0.05, False), (0.2, True)])
def test_the_adapted_model_predicts_alone_once_it_leads_clearly(lead: float, alone: bool) -> None:
    arbiter, batch = Arbiter(Limits(), 300, CLASSES), comparison(0.6, 0.6 + lead)
    judged(arbiter, batch)
    judged(arbiter, batch)
    assert not arbiter.prefers_source
    fused = arbiter.fuse(batch, batch.adapted_logits)
    assert (fused is batch.adapted_logits) == alone
    if not alone:
        parts = [mean_probability(batch.source_logits, batch.source_flipped)]
        parts += [mean_probability(batch.adapted_logits, batch.adapted_flipped)]
        weights = torch.tensor([0.6, 0.6 + lead]) ** 3
        wanted = (weights[0] * parts[0] + weights[1] * parts[1]) / weights.sum()
        torch.testing.assert_close(fused.softmax(1), wanted)


def test_the_flip_is_left_out_where_it_has_another_meaning() -> None:
    arbiter, batch = Arbiter(Limits(), 300, CLASSES), comparison(0.4, 0.2, classes=2)
    batch = batch._replace(source_flipped=batch.source_logits.roll(1, dims=1))
    judged(arbiter, batch)
    both = (0.4**3 * batch.source_logits.softmax(1) + 0.2**3 * batch.adapted_logits.softmax(1)) / (0.4**3 + 0.2**3)
    torch.testing.assert_close(arbiter.fuse(batch, batch.adapted_logits).softmax(1), both)


def weak_predictions(labels: Tensor) -> FlipComparison:
    """A source that is right for six images of ten and leads, and an adapted model that knows nothing."""
    generator = torch.Generator().manual_seed(0)
    wrong = torch.rand(len(labels), generator=generator) > 0.6
    guesses = torch.where(wrong, torch.randint(CLASSES, labels.shape, generator=generator), labels)
    logits = 2 * nn.functional.one_hot(guesses, CLASSES).float()
    consistency = torch.full((len(labels),), 0.7)
    return FlipComparison(
        logits, logits, torch.zeros_like(logits), torch.zeros_like(logits), consistency, consistency / 2
    )


def test_classes_in_order_correct_the_predictions() -> None:
    arbiter, labels = Arbiter(Limits(), 300, CLASSES), torch.arange(CLASSES).repeat_interleave(50)
    right = {"source": 0, "fused": 0}
    for part in labels.split(50):
        batch = weak_predictions(part)
        judged(arbiter, batch)
        for name, logits in (("source", batch.source_logits), ("fused", arbiter.fuse(batch, batch.adapted_logits))):
            right[name] += int((logits.argmax(1) == part).sum())
    assert right["fused"] > right["source"] + 20


@pytest.mark.parametrize("order", ["shuffled", "single class"])
def test_without_a_change_of_classes_the_source_stays_as_it_is(order: str) -> None:
    arbiter = Arbiter(Limits(), 300, CLASSES)
    labels = torch.randint(CLASSES, (300,), generator=torch.Generator().manual_seed(1))
    for part in (labels if order == "shuffled" else torch.zeros_like(labels)).split(50):
        batch = weak_predictions(part)
        judged(arbiter, batch)
        assert arbiter.fuse(batch, batch.adapted_logits) is batch.source_logits


def test_doubt_ends_with_a_clear_lead_and_unusual_entropies_return_it() -> None:
    arbiter = Arbiter(Limits(), 300, CLASSES)
    assert arbiter.is_in_doubt()
    for _ in range(6):
        judged(arbiter, comparison(0.5, 0.7))
        assert not arbiter.is_surprised_by(torch.linspace(0.4, 0.6, 50))
    assert not arbiter.is_in_doubt()
    assert arbiter.is_surprised_by(torch.linspace(0.9, 1.1, 50))


def test_repeated_images_are_noted_once() -> None:
    arbiter, images = Arbiter(Limits(), 300, CLASSES), torch.rand(16, 3, 4, 4)
    assert arbiter.judge_variety(images) is None
    repeated = images[:3].repeat(6, 1, 1, 1)
    assert arbiter.judge_variety(repeated) == "a batch of 18 contains only 3 distinct images"
    assert arbiter.judge_variety(repeated) is None
    assert arbiter.repeats
    assert arbiter.judge_variety(images) == "batches vary again"
    assert arbiter.judge_variety(images[:1]) is None
    assert count_distinct(torch.zeros(5, 3, 4, 4)) == 1
    assert count_distinct(images[:, :, :, 1:]) == 16


@pytest.mark.parametrize("small", [False, True, "window"])
def test_a_comparison_changes_no_adapter(small: bool | str, model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "ttc", small_batches=small)
    source = source_classifier(adapter)
    adapter(stream[0])
    before = adapter.state_dict()
    found = compare_with_source(adapter, source, stream[0])
    assert found is not None
    torch.testing.assert_close(adapter.state_dict(), before, rtol=0, atol=0)
    assert torch.equal(found.source_logits, source(stream[0]).logits)
    flipped = source(stream[0].flip(-1)).logits
    own = (found.source_logits.softmax(1) * flipped.softmax(1)).sum(1)
    torch.testing.assert_close(found.source_consistency, own)
    if small == "window":
        return  # rejects what follows by itself
    with torch.no_grad():
        next(p for p in adapter.model.parameters() if p.requires_grad).fill_(float("nan"))
    assert compare_with_source(adapter, source, stream[0]) is None
