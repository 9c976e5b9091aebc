"""Which model is to predict: evidence from both, changes of the stream, repeated images."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from ttc.clustering import ClassPrior, correct_logits
from ttc.deploy import Limits
from ttc.deploy.arbiter import Arbiter, count_distinct
from ttc.deploy.flip_comparison import FlipComparison, FlipPair

CLASSES = 4


def comparison(
    source: float, adapted: float, images: int = 50, classes: int = CLASSES, blended: float | None = None
) -> FlipComparison:
    """Consistencies; the source and the blended source predict the first ``classes``, the adapted model all of them."""
    spread = 0.1 * torch.linspace(-1, 1, images)
    logits = 9 * nn.functional.one_hot(torch.arange(images) % classes, CLASSES).float()
    even = 9 * nn.functional.one_hot(torch.arange(images) % CLASSES, CLASSES).float()
    return FlipComparison(
        FlipPair(logits, logits * 0.9, source + spread),
        FlipPair(logits * 0.6, logits * 0.5, (source if blended is None else blended) + spread),
        FlipPair(even, even * 0.8, adapted - spread),
    )


def mean_probability(pair: FlipPair) -> Tensor:
    return (pair.logits.softmax(1) + pair.flipped.softmax(1)) / 2


def weighted(batch: FlipComparison, **evidence: float) -> Tensor:
    """The mean probability of the named models, weighted by the tenth power of their evidence."""
    weights = {name: value**10 for name, value in evidence.items()}
    parts = [weight * mean_probability(getattr(batch, name)) for name, weight in weights.items()]
    return torch.stack(parts).sum(0) / sum(weights.values())


def judged(arbiter: Arbiter, batch: FlipComparison) -> str | None:
    return arbiter.judge(batch, batch.adapted.logits)


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


def test_a_source_that_leads_predicts_together_with_blended_statistics() -> None:
    arbiter, batch = Arbiter(Limits(), 300, CLASSES), comparison(0.7, 0.4, classes=2, blended=0.75)
    judged(arbiter, batch)
    fused = arbiter.fuse(batch, batch.adapted.logits)
    torch.testing.assert_close(fused.softmax(1), weighted(batch, source=0.7, blended=0.75))


def test_a_source_that_is_not_consistent_predicts_with_blended_statistics_only() -> None:
    arbiter, batch = Arbiter(Limits(), 300, CLASSES), comparison(0.4, 0.2, classes=2)
    judged(arbiter, batch)
    fused = arbiter.fuse(batch, batch.adapted.logits)
    torch.testing.assert_close(fused.softmax(1), mean_probability(batch.blended))


def test_a_class_that_blending_takes_away_was_made_by_the_corruption() -> None:
    arbiter, batch = Arbiter(Limits(), 300, CLASSES), comparison(0.7, 0.4, classes=1, blended=0.6)
    pair = batch.blended
    other = pair._replace(logits=pair.logits.roll(1, dims=1), flipped=pair.flipped.roll(1, dims=1))
    batch = batch._replace(blended=other)
    judged(arbiter, batch)
    fused = arbiter.fuse(batch, batch.adapted.logits)
    alone = mean_probability(other).log()
    torch.testing.assert_close(fused, correct_logits(alone, ClassPrior(CLASSES)(alone)))


@pytest.mark.parametrize(("lead", "alone"), [(0.05, False), (0.2, True)])
def test_the_adapted_model_predicts_alone_once_it_leads_clearly(lead: float, alone: bool) -> None:
    arbiter, batch = Arbiter(Limits(), 300, CLASSES), comparison(0.6, 0.6 + lead)
    judged(arbiter, batch)
    judged(arbiter, batch)
    assert not arbiter.prefers_source
    fused = arbiter.fuse(batch, batch.adapted.logits)
    assert (fused is batch.adapted.logits) == alone
    if not alone:
        wanted = weighted(batch, source=0.6, blended=0.6, adapted=0.6 + lead)
        torch.testing.assert_close(fused.softmax(1), wanted)


def test_the_flip_is_left_out_where_it_has_another_meaning() -> None:
    arbiter, batch = Arbiter(Limits(), 300, CLASSES), comparison(0.4, 0.2, classes=2)
    batch = batch._replace(source=batch.source._replace(flipped=batch.source.logits.roll(1, dims=1)))
    judged(arbiter, batch)
    fused = arbiter.fuse(batch, batch.adapted.logits)
    torch.testing.assert_close(fused.softmax(1), batch.blended.logits.softmax(1))


def weak_predictions(labels: Tensor) -> FlipComparison:
    """A source that is right for six images of ten and leads, and an adapted model that knows nothing."""
    generator = torch.Generator().manual_seed(0)
    wrong = torch.rand(len(labels), generator=generator) > 0.6
    guesses = torch.where(wrong, torch.randint(CLASSES, labels.shape, generator=generator), labels)
    logits = 2 * nn.functional.one_hot(guesses, CLASSES).float()
    consistency = torch.full((len(labels),), 0.7)
    source = FlipPair(logits, logits, consistency)
    return FlipComparison(source, source, FlipPair(torch.zeros_like(logits), torch.zeros_like(logits), consistency / 2))


def test_classes_in_order_correct_the_predictions() -> None:
    arbiter, labels = Arbiter(Limits(), 300, CLASSES), torch.arange(CLASSES).repeat_interleave(50)
    right = {"source": 0, "fused": 0}
    for part in labels.split(50):
        batch = weak_predictions(part)
        judged(arbiter, batch)
        for name, logits in (("source", batch.source.logits), ("fused", arbiter.fuse(batch, batch.adapted.logits))):
            right[name] += int((logits.argmax(1) == part).sum())
    assert right["fused"] > right["source"] + 20


def fused_predictions(arbiter: Arbiter, batches: Sequence[FlipComparison]) -> Tensor:
    """Judge batches one after the other, and return what is predicted for them."""
    found = []
    for batch in batches:
        judged(arbiter, batch)
        found.append(arbiter.fuse(batch, batch.adapted.logits))
    return torch.cat(found)


def test_without_an_order_of_classes_the_source_stays_as_it_is() -> None:
    labels = torch.randint(CLASSES, (300,), generator=torch.Generator().manual_seed(1))
    batches = [weak_predictions(part) for part in labels.split(50)]
    plain = torch.cat([batch.source.logits for batch in batches])
    fused = fused_predictions(Arbiter(Limits(), 300, CLASSES), batches)
    torch.testing.assert_close(fused.softmax(1), plain.softmax(1))


def test_a_single_class_that_blended_statistics_show_too_corrects_the_predictions() -> None:
    batches = [weak_predictions(part) for part in torch.zeros(300, dtype=torch.long).split(50)]
    plain = torch.cat([batch.source.logits for batch in batches])
    fused = fused_predictions(Arbiter(Limits(), 300, CLASSES), batches)
    assert (fused.argmax(1) == 0).sum() > (plain.argmax(1) == 0).sum() + 60


def test_a_single_class_of_the_source_alone_corrects_nothing() -> None:
    single, others = torch.zeros(300, dtype=torch.long), 1 + torch.arange(300) % (CLASSES - 1)
    batches = [
        weak_predictions(one)._replace(blended=weak_predictions(other).source)
        for one, other in zip(single.split(50), others.split(50), strict=True)
    ]
    fused = fused_predictions(Arbiter(Limits(), 300, CLASSES), batches)
    torch.testing.assert_close(fused.softmax(1), torch.cat([mean_probability(batch.blended) for batch in batches]))


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
