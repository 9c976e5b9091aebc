"""Draws by seed and step."""

import torch

from ttc.core import seeded_generator


def test_seed_and_step_both_matter_and_repeat() -> None:
    draws = {
        (seed, step): torch.rand(4, generator=seeded_generator(seed, step)) for seed in range(5) for step in range(5)
    }
    assert len({tuple(values.tolist()) for values in draws.values()}) == 25
    assert torch.equal(draws[3, 2], torch.rand(4, generator=seeded_generator(3, 2)))


def test_seed_zero_is_the_step_itself() -> None:
    expected = torch.rand(4, generator=torch.Generator().manual_seed(7))
    assert torch.equal(torch.rand(4, generator=seeded_generator(0, 7)), expected)
