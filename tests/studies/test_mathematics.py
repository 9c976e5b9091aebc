"""Lemma 1 and the overlap of densities, against independent computations."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ttc.studies.density import density, overlap
from ttc.studies.probabilities import CLASSES, descent, start

Logits = st.lists(st.floats(-4, 4), min_size=2, max_size=8)


@given(Logits)
@settings(max_examples=50)
def test_a_small_step_never_lowers_the_largest_probability(logits: list[float]) -> None:
    path = descent(np.array(logits), steps=3, rate=0.1)
    assert (np.diff(path.max(1)) >= -1e-12).all()
    assert path.sum(1) == pytest.approx(np.ones(4))


def test_the_step_is_that_of_automatic_differentiation() -> None:
    z = torch.tensor([0.3, -0.2, 0.9, 0.0], dtype=torch.float64, requires_grad=True)
    p = z.softmax(0)
    (-(p * p.log()).sum()).backward()
    assert z.grad is not None
    expected = (z - 0.7 * z.grad).softmax(0).detach().numpy()
    assert descent(z.detach().numpy(), steps=1, rate=0.7)[1] == pytest.approx(expected)


@pytest.mark.parametrize("classes", CLASSES)
def test_the_figure_starts_close_together(classes: int) -> None:
    p = descent(start(classes), steps=0)[0]
    assert p.argmax() == 0
    assert p[0] < 2.2 / classes


def test_the_overlap_of_two_normals() -> None:
    random = np.random.default_rng(0)
    one, other = random.normal(0, 1, 4000), random.normal(1, 1, 4000)
    exact = 1 + math.erf(-0.5 / math.sqrt(2))  # 2 Φ(-1/2)
    assert overlap(one, other) == pytest.approx(exact, abs=0.03)
    assert overlap(one, other) == pytest.approx(overlap(other, one), abs=1e-9)


def test_a_dead_channel_overlaps_itself() -> None:
    assert overlap(np.zeros(50), np.zeros(50)) == pytest.approx(1.0, abs=0.01)


def test_the_density_is_the_mean_of_kernels() -> None:
    values, grid = np.array([0.0, 2.0]), np.array([0.5])
    width = 1.0 * 2**-0.2
    by_hand = sum(math.exp(-0.5 * ((0.5 - v) / width) ** 2) for v in values) / 2 / (width * math.sqrt(2 * math.pi))
    assert density(values, grid)[0] == pytest.approx(by_hand)
