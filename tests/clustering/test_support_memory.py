"""Supports of a stream: those of an outlier are dropped, and a state that does not fit is rejected."""

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.clustering import Supports
from ttc.clustering.support_memory import SupportMemory
from ttc.core.state import check_state


def supports(count: int, seed: int = 0) -> Supports:
    generator = torch.Generator().manual_seed(seed)
    return Supports.of(torch.rand(count, 6, generator=generator), torch.rand(count, 4, generator=generator))


def images(seed: int) -> Tensor:
    small = torch.rand(20, 3, 4, 4, generator=torch.Generator().manual_seed(seed))
    return nn.functional.interpolate(small, scale_factor=8, mode="bilinear")


def test_supports_of_an_outlier_are_dropped_with_the_next_batch() -> None:
    memory = SupportMemory(supports(4), per_class=None, num_classes=4)
    for seed, batch in enumerate([images(0), images(1), torch.zeros(20, 3, 32, 32)]):
        memory.store(batch, memory.joined(batch, supports(3, seed)))
    assert len(memory.supports.features) == 13
    assert len(memory.known_at(images(2)).features) == 10
    memory.store(images(2), memory.joined(images(2), supports(2, 3)))
    assert len(memory.supports.features) == 12


@pytest.mark.parametrize("outlier", [0, 1])
def test_the_third_batch_tells_which_of_the_first_two_to_drop(outlier: int) -> None:
    memory = SupportMemory(supports(4), per_class=None, num_classes=4)
    batches = [images(0), images(1)]
    batches[outlier] = torch.zeros(20, 3, 32, 32)
    for size, batch in zip([1, 2], batches, strict=True):
        assert len(memory.known_at(batch).features) == 4  # the second one is predicted without the first
        memory.store(batch, memory.joined(batch, supports(size, size)))
    assert len(memory.known_at(images(2)).features) == [6, 5][outlier]
    memory.store(images(2), memory.joined(images(2), supports(3, 3)))
    assert [len(one.features) for one in (memory.before, memory.supports)] == [[6, 9], [5, 8]][outlier]


@pytest.mark.parametrize("method", ["t3a", "tast", "tsd"])
def test_supports_that_do_not_belong_together_are_rejected(method: str, model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, method)
    adapter(stream[0])
    state = adapter.state_dict()
    check_state(adapter, state)
    features, labels, *others = state["memory"]["supports"]
    for wrong in ((features, labels + 4, *others), (features[1:], labels, *others)):
        state["memory"]["supports"] = wrong
        with pytest.raises(ValueError, match="do not belong together"):
            check_state(adapter, state)
