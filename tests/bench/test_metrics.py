import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from ttc.bench.metrics import (
    calibration_error,
    class_accuracy,
    mcnemar,
    mean_std,
    paired_interval,
)
from ttc.errors import TTCError


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 200), st.integers(0, 200))
def test_mcnemar_is_the_exact_binomial_test(only_first: int, only_second: int) -> None:
    first = np.repeat([True, False, True], [only_first, only_second, 7])
    second = np.repeat([False, True, True], [only_first, only_second, 7])
    found = mcnemar(first, second)
    assert (found.only_first, found.only_second) == (only_first, only_second)
    discordant = only_first + only_second
    expected = scipy.stats.binomtest(only_first, discordant).pvalue if discordant else 1.0
    assert found.p_value == pytest.approx(expected, rel=1e-9)


def test_mcnemar_does_not_underflow_early() -> None:
    first = np.repeat([True, False], [40_000, 1000])
    assert mcnemar(first, ~first).p_value == 0
    few = np.repeat([True, False], [900, 0])
    assert mcnemar(few, ~few).p_value == pytest.approx(2.0**-899, rel=1e-12)


def test_the_paired_interval_agrees_with_scipy() -> None:
    random = np.random.default_rng(0)
    first = random.random(400) < 0.7
    second = np.where(random.random(400) < 0.1, ~first, first)
    found = paired_interval(first, second, draws=20_000)
    expected = scipy.stats.bootstrap(
        (second.astype(float) - first.astype(float),), np.mean, n_resamples=20_000, method="percentile", rng=random
    ).confidence_interval
    assert found.estimate == pytest.approx(second.mean() - first.mean())
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.004)
    assert found == paired_interval(first, second, draws=20_000)


def test_equal_predictions_leave_no_uncertainty() -> None:
    same = np.array([True, False, True])
    assert paired_interval(same, same) == (0, 0, 0)
    assert mcnemar(same, same).p_value == 1


def test_calibration_error_is_the_sum_over_bins() -> None:
    random = np.random.default_rng(1)
    confidence, correct = random.random(500), random.random(500) < 0.5
    expected = 0.0
    for low, high in itertools.pairwise(np.linspace(0, 1, 16)):
        inside = (confidence > low) & (confidence <= high)
        if inside.any():
            expected += inside.mean() * abs(correct[inside].mean() - confidence[inside].mean())
    assert calibration_error(confidence, correct) == pytest.approx(expected)
    assert calibration_error(np.array([0.0, 1.0]), np.array([False, True])) == 0


def test_accuracy_per_class() -> None:
    random = np.random.default_rng(2)
    labels, correct = random.integers(0, 3, 50), random.random(50) < 0.5
    assert class_accuracy(correct, labels, 4) == [*(correct[labels == k].mean() for k in range(3)), None]


def test_mean_and_standard_deviation() -> None:
    values = [0.7, 0.75, 0.71]
    assert mean_std(values)[:2] == pytest.approx((np.mean(values), scipy.stats.tstd(values)))
    assert math.isnan(mean_std([0.7]).std)
    with pytest.raises(TTCError, match="at least one value"):
        mean_std([])
