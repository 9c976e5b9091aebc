import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttc.bench import SCENARIOS, Batch, Spec
from ttc.bench.scenarios import Domain, domains_of, stream, with_defaults
from ttc.errors import TTCError

LABELS = [np.arange(23) % 4, np.arange(17) % 4, np.arange(5) % 4]


def batches(scenario: str, batch_size: int = 6, seed: int = 0) -> list[Batch]:
    return list(stream(with_defaults(Spec.read(scenario)), LABELS, batch_size, seed))


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(name for name, one in SCENARIOS.items() if not one.subsamples)),
    st.integers(1, 500),
    st.integers(0, 3),
)
def test_every_image_once_per_pass_in_batches_of_the_size(name: str, batch_size: int, seed: int) -> None:
    found = batches(name, batch_size, seed)
    expected = {(domain, image) for domain, labels in enumerate(LABELS) for image in range(len(labels))}
    for epoch in range(1 + max(batch.epoch for batch in found)):
        shown = [
            pair
            for batch in found
            if batch.epoch == epoch
            for pair in zip(batch.domain.tolist(), batch.image.tolist(), strict=True)
        ]
        assert len(shown) == len(expected)
        assert set(shown) == expected
    assert all(1 <= len(batch.image) == len(batch.domain) <= batch_size for batch in found)
    again = batches(name, batch_size, seed)
    assert all(np.array_equal(one.image, other.image) for one, other in zip(found, again, strict=True))


def test_the_last_batch_may_be_short() -> None:
    assert [len(batch.image) for batch in batches("per-domain")] == [6, 6, 6, 5, 6, 6, 5, 5]
    assert [len(batch.image) for batch in batches("mixed")] == [6] * 7 + [3]


def test_a_long_tail_keeps_the_first_images_of_rare_classes() -> None:
    labels = [np.arange(400) % 4]

    def shown(ratio: float, seed: int) -> list[int]:
        found = stream(with_defaults(Spec.of("long-tailed", {"ratio": ratio})), labels, 16, seed)
        return [int(index) for batch in found for index in batch.image]

    assert np.bincount(labels[0][shown(8, 0)]).tolist() == [100, 50, 25, 12]
    assert shown(8, 0) != shown(8, 1)
    assert sorted(shown(8, 0)) == sorted(shown(8, 1))  # the seed decides the order alone
    assert sorted(shown(1, 0)) == list(range(400))
    assert sorted(index for index in shown(8, 0) if index % 4 == 3) == list(range(3, 48, 4))
    assert batches("long-tailed(ratio=1e9)", 100)[0].image.tolist().count(0) == 1  # every class is left


def test_recurring_shows_all_domains_in_every_round() -> None:
    found = batches("recurring(rounds=3)", 100)
    assert [(batch.epoch, batch.domain[0]) for batch in found] == [(e, d) for e in range(3) for d in range(3)]
    assert not any(batch.reset for batch in found)
    assert not np.array_equal(found[0].image, found[3].image)


def test_single_images_come_one_by_one() -> None:
    found = batches("single-image", 100)
    assert {len(batch.image) for batch in found} == {1}
    assert sum(batch.reset for batch in found) == len(LABELS)
    assert SCENARIOS["single-image"].batch_size == 1


def test_when_a_scenario_resets() -> None:
    first_of_domain = [True, False, False, False, True, False, False, True]
    assert [batch.reset for batch in batches("per-domain")] == first_of_domain
    assert [batch.reset for batch in batches("label-shift")] == first_of_domain
    assert not any(batch.reset for name in ("continual", "gradual", "mixed") for batch in batches(name))
    assert all(batch.reset for batch in batches("episodic"))
    repeated = batches("repeated(epochs=2)", 100)
    assert [(batch.domain[0], batch.epoch, batch.reset) for batch in repeated] == [
        (0, 0, True), (0, 1, False), (1, 0, True), (1, 1, False), (2, 0, True), (2, 1, False),
    ]  # fmt: skip
    assert not np.array_equal(repeated[0].image, repeated[1].image)


def test_the_seed_decides_the_order() -> None:
    assert not np.array_equal(batches("per-domain")[0].image, batches("per-domain", seed=1)[0].image)


def test_clean_images_surround_the_corrupted_ones() -> None:
    assert domains_of(Spec("clean-corrupt-clean"), ("fog",), 3) == [("clean", 0), ("fog", 3), ("clean", 0)]
    found = batches("clean-corrupt-clean", 100)
    assert [batch.domain[0] for batch in found] == [0, 1, 2]
    assert not any(batch.reset for batch in found)


def test_gradual_goes_up_and_down() -> None:
    assert SCENARIOS["gradual"].severities(5) == (1, 2, 3, 4, 5, 4, 3, 2, 1)
    assert SCENARIOS["gradual"].severities(1) == (1,)
    assert SCENARIOS["continual"].severities(5) == (5,)


def test_the_domains_of_a_cell() -> None:
    found = domains_of(Spec("gradual"), ("clean", "fog"), 2)
    assert found == [Domain("clean", 0), Domain("fog", 1), Domain("fog", 2), Domain("fog", 1)]


def test_mixed_batches_hold_several_domains() -> None:
    assert any(len(set(batch.domain.tolist())) > 1 for batch in batches("mixed"))


def test_a_small_alpha_makes_batches_of_few_classes() -> None:
    labels = [np.arange(2000) % 10]

    def largest_fraction(alpha: float) -> float:
        found = stream(with_defaults(Spec.of("label-shift", {"alpha": alpha})), labels, 50, 0)
        return float(np.mean([np.bincount(labels[0][batch.image]).max() / len(batch.image) for batch in found]))

    assert largest_fraction(0.01) > 0.5 > 0.35 > largest_fraction(1)
    assert largest_fraction(1e6) == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("continuall", r"unknown scenario 'continuall' \(did you mean 'continual'\?\); choose from: per-domain,"),
        (
            "label-shift(alfa=1)",
            r"unknown option of the scenario 'label-shift' 'alfa' \(did you mean 'alpha'\?\)",
        ),
        ("mixed(x=1)", "unknown option of the scenario 'mixed' 'x'; there is none"),
        ("label-shift(alpha=0)", "alpha of label-shift must be positive, got 0"),
        ("label-shift(alpha='a')", "alpha of the scenario 'label-shift' must be a number, got 'a'"),
        ("repeated(epochs=0)", "epochs of repeated must be at least 1, got 0"),
        ("long-tailed(ratio=0.5)", "ratio of long-tailed must be at least 1, got 0.5"),
        ("recurring(rounds=0)", "rounds of recurring must be at least 1, got 0"),
        ("repeated(epochs=1.5)", "must be a whole number, got 1.5"),
    ],
)
def test_invalid_scenarios_are_rejected(text: str, sentence: str) -> None:
    with pytest.raises(TTCError, match=sentence):
        with_defaults(Spec.read(text))
