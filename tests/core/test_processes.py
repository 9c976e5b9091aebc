"""One process by itself: every operation of shared streams changes nothing."""

import copy

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.core.part import Part
from ttc.core.processes import ALONE, LostProcessError


def test_alone_nothing_changes() -> None:
    x = torch.rand(3, 2)
    with ALONE.split(x) as shard:
        assert shard is x
    assert ALONE.join(x) is x
    assert torch.equal(ALONE.apply_to_whole(torch.neg, x), -x)
    assert torch.equal(ALONE.run(torch.neg, x), -x)
    assert torch.equal(ALONE.stack(x), x[None])
    assert ALONE.sum([x, None])[0] is x
    assert (ALONE.fractions(), ALONE.count_rows(x), ALONE.exchange("text")) == ([1.0], 3, ["text"])
    assert ALONE.exchange_objects(x)[0] is x
    assert not ALONE.active


def test_a_copy_belongs_to_the_same_processes(model: nn.Module) -> None:
    adapter = ttc.adapt(model, "tent")
    assert copy.deepcopy(adapter).model.processes is adapter.model.processes is ALONE


def test_a_lost_process_is_no_rejected_batch() -> None:
    assert not issubclass(LostProcessError, ttc.TTCError)


def test_a_part_that_says_nothing_cannot_share_a_stream() -> None:
    class Mine(Part):
        pass

    with pytest.raises(ttc.TTCError, match="Mine cannot share a stream between processes: run it in one"):
        Mine().share_stream_(ALONE)


def test_together_is_one_batch_and_each_are_several(model: nn.Module, stream: list[Tensor]) -> None:
    classifier = ttc.adapt(model, "norm").model
    first, second = stream[0], stream[1]
    joint = classifier(torch.cat([first, second])).logits
    parts = classifier.together([first, second])
    torch.testing.assert_close(torch.cat([part.logits for part in parts]), joint)
    assert not torch.allclose(classifier.each([first, second])[0].logits, parts[0].logits, atol=1e-3)
