"""Random numbers depend only on (seed, purpose, index)."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ttc.corruptions.random_streams import RandomStreams


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**64 - 1),
    indices=st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=6, unique=True),
    draws=st.integers(1, 3),
)
def test_streams_are_addressed_by_index(seed: int, indices: list[int], draws: int) -> None:
    cpu = torch.device("cpu")
    together = RandomStreams(seed, "test", indices, cpu)
    alone = RandomStreams(seed, "test", indices[-1:], cpu)
    seen = []
    for _ in range(draws):
        batch = together.uniform(5)
        assert torch.equal(batch[-1:], alone.uniform(5))
        seen.append(batch)
    numbers = torch.cat(seen).flatten()
    assert len(numbers.unique()) == len(numbers)  # no two images and no two draws fraction numbers
    assert torch.equal(together.normal(4)[-1:], alone.normal(4))


def test_streams_pass_for_independent_uniform_numbers() -> None:
    numbers = RandomStreams(5, "test", range(400), torch.device("cpu")).uniform(400)
    assert numbers.mean().item() == pytest.approx(0.5, abs=0.004)
    correlation = torch.corrcoef(numbers)[~torch.eye(400, dtype=torch.bool)]
    assert correlation.std().item() == pytest.approx(1 / 400**0.5, rel=0.05)
