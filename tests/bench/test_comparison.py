import dataclasses

import numpy as np
import pytest

from tests.bench.conftest import make_row
from ttc.bench import Row
from ttc.bench.comparison import comparisons, method_names, summaries
from ttc.bench.metrics import mcnemar, paired_interval
from ttc.errors import TTCError

GRID = [make_row(m, s, seed, c) for m, s in (("norm", 0.5), ("ttc", 0.7)) for seed in (0, 1) for c in ("fog", "snow")]


def test_summaries_average_over_corruptions_then_seeds() -> None:
    norm, better = summaries([*GRID, make_row("tipi", status="failed", figures={}, error="it broke")])
    assert (norm.method, better.method, norm.corruptions, norm.seeds) == ("norm", "ttc", 2, 2)
    accuracies = [row.figures["accuracy"] for row in GRID[:4]]
    by_seed = [np.mean(accuracies[:2]), np.mean(accuracies[2:])]
    assert norm.accuracy == pytest.approx((np.mean(by_seed), np.std(by_seed, ddof=1), 2))
    assert norm.error.mean == pytest.approx(1 - norm.accuracy.mean)
    assert better.nll.mean == pytest.approx(0.3)


def test_settings_are_summarized_separately() -> None:
    other = make_row("norm")
    other = dataclasses.replace(other, protocol=dataclasses.replace(other.protocol, batch_size=9))
    assert len(summaries([make_row("norm"), other])) == 2


def with_textures(row: Row, textures: str) -> Row:
    return dataclasses.replace(row, protocol=dataclasses.replace(row.protocol, textures=textures))


def test_cells_with_different_frost_are_never_averaged() -> None:
    fog, frost = make_row("norm", 0.5), make_row("norm", 0.9, corruption="frost")
    both = summaries([fog, with_textures(frost, "original frost"), with_textures(frost, "procedural frost")])
    assert [one.setting["textures"] for one in both] == ["original frost", "procedural frost"]
    assert [one.corruptions for one in both] == [2, 2]  # the cell without frost is part of each mean
    (alone,) = summaries([fog])
    assert (alone.setting["textures"], alone.corruptions) == ("", 1)


def test_a_method_is_called_as_it_was_when_recorded() -> None:
    rows = [make_row("ttc(bandwidth=2)"), make_row("ttc"), make_row("norm", label="mine:builder(lr=0.1)")]
    assert list(method_names(rows).values()) == ["ttc(bandwidth=2)", "ttc", "mine:builder(lr=0.1)"]


def test_methods_of_an_old_store_are_told_apart_by_the_options_that_differ() -> None:
    rows = [make_row(method, label=None) for method in ("ttc(bandwidth=2)", "ttc", "norm-blend", "norm")]
    assert list(method_names(rows).values()) == ["ttc(bandwidth=2)", "ttc(bandwidth=1.0)", "norm-blend", "norm"]


def test_a_method_is_compared_though_variants_of_it_were_run() -> None:
    found, _ = comparisons([*GRID, make_row("ttc(bandwidth=2)", 0.1)], "norm", "ttc(bandwidth=1.0)")
    assert found == comparisons(GRID, "norm", "ttc")[0]
    assert len(comparisons([*GRID, make_row("ttc(bandwidth=2)", 0.1)], "ttc", "ttc(bandwidth=2)")[0]) == 1


def test_two_methods_are_compared_on_the_same_images() -> None:
    found, overall = comparisons(GRID, "norm", "ttc")
    assert [(one.domain, one.seed) for one in found][:2] == [
        ("fog 5, per-domain, batch 24", 0),
        ("snow 5, per-domain, batch 24", 0),
    ]
    first, second = GRID[0].correct, GRID[4].correct
    assert found[0].difference == paired_interval(first, second)
    assert found[0].test == mcnemar(first, second)
    means = [np.mean([row.correct for row in part], axis=0) for part in (GRID[:4], GRID[4:])]
    assert overall == paired_interval(means[0], means[1])
    assert overall.estimate == pytest.approx(np.mean([one.difference.estimate for one in found]))
    assert overall.low < overall.estimate < overall.high


def test_what_cannot_be_compared_is_rejected() -> None:
    with pytest.raises(
        TTCError, match=r"unknown finished method 'nrm' \(did you mean 'norm'\?\); choose from: norm, ttc"
    ):
        comparisons(GRID, "nrm", "ttc")
    with pytest.raises(
        TTCError, match=r"by both 'norm' and 'ttc' in the same setting, the nearest differ in seed \(0, 1\)"
    ):
        comparisons([make_row("norm", seed=0), make_row("ttc", seed=1)], "norm", "ttc")
    short = np.ones(3, bool)
    rows = [*GRID[:1], *GRID[4:5], make_row("norm", seed=7, correct=short), make_row("ttc", seed=7, correct=short)]
    with pytest.raises(TTCError, match=r"cells of \[3, 80\] images cannot be averaged image by image"):
        comparisons(rows, "norm", "ttc")
