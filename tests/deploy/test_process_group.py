"""The operations on shards, in a group of one process that takes itself for one of several."""

import pickle
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import ttc
from ttc.core import LostProcessError
from ttc.deploy.process_group import TEXT_BYTES, GroupProcesses


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dist.ProcessGroup]:
    place = tmp_path_factory.mktemp("group") / "store"
    dist.init_process_group("gloo", f"file://{place}", rank=0, world_size=1)
    assert dist.group.WORLD is not None
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.fixture
def processes(group: dist.ProcessGroup) -> GroupProcesses:
    return GroupProcesses(group, torch.device("cpu"), timeout=5)


def test_nothing_is_exchanged_between_batches(processes: GroupProcesses) -> None:
    x = torch.rand(3, 2)
    processes.size = 2  # any exchange would fail
    assert not processes.active
    assert processes.join(x) is x
    assert processes.sum([x])[0] is x
    assert torch.equal(processes.stack(x), x[None])
    assert torch.equal(processes.apply_to_whole(torch.neg, x), -x)
    assert (processes.fractions(), processes.count_rows(x)) == ([1.0], 3)
    with processes.split(x) as shard:
        assert shard is x


def test_rows_are_counted_over_all_shards(processes: GroupProcesses) -> None:
    processes.size = 3
    with processes._computing((4, 0, 2)):
        assert processes.fractions() == [4 / 6, 0, 2 / 6]
        assert processes.count_rows(torch.rand(4, 1)) == 6
        assert processes.count_rows(torch.rand(8, 1)) == 12  # two views together
        processes.rank = 1
        assert processes.count_rows(torch.rand(1, 1)) == 6  # of a blank image, which is none of them
        assert processes.own_slice() == slice(4, 4)


def test_a_group_of_one_gives_what_is_given(processes: GroupProcesses, model: nn.Module) -> None:
    adapter = ttc.adapt(model, "norm")
    x = processes.validate(adapter, torch.rand(4, 3, 8, 8))
    logits = processes.run(lambda shard: processes.join(adapter.infer(shard)), x)
    torch.testing.assert_close(logits, adapter.predict(x))


def test_gradients_pass_through_an_exchange(processes: GroupProcesses) -> None:
    x = torch.rand(4, 2, requires_grad=True)
    with processes._computing((4,)):
        (processes.join(x) * 3).sum().backward()
        assert x.grad is not None
        assert torch.equal(x.grad, torch.full_like(x, 3))
        (processes.stack(x) * 2).sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 5))


def test_a_text_is_cut_between_characters(processes: GroupProcesses) -> None:
    (text,) = processes.exchange("é" * TEXT_BYTES)
    assert text == "é" * (TEXT_BYTES // 2)
    assert processes.exchange_objects({"any": [1]}) == [{"any": [1]}]


def test_a_failed_exchange_ends_the_stream(processes: GroupProcesses) -> None:
    def fail() -> None:
        raise RuntimeError("[/gloo/tcp/pair.cc:537] Connection closed by peer. Some advice\nand details")

    with pytest.raises(LostProcessError, match=r"did not arrive within 5 s, .* \(Connection closed by peer\)"):
        processes._collect(fail)
    with pytest.raises(LostProcessError, match="another process of the stream has stopped"):
        processes.exchange("still there?")


def test_a_failure_of_one_process_alone_ends_its_part(processes: GroupProcesses) -> None:
    def run_out_of_memory(shard: Tensor) -> Tensor:
        raise MemoryError

    def reject(shard: Tensor) -> Tensor:
        raise ttc.TTCError("rejected by all")

    with pytest.raises(ttc.TTCError):
        processes.run(reject, torch.rand(1, 2))
    assert processes.exchange("there") == ["there"]
    with pytest.raises(MemoryError):
        processes.run(run_out_of_memory, torch.rand(1, 2))
    with pytest.raises(LostProcessError, match=r"\(MemoryError in process 0\)"):
        processes.exchange("out of step")


def test_one_process_shares_with_nobody(group: dist.ProcessGroup, model: nn.Module) -> None:
    adapter = ttc.adapt(model, "cotta")
    assert ttc.distributed(adapter) is adapter
    assert adapter.processes.size == 1


def test_it_cannot_be_pickled(processes: GroupProcesses) -> None:
    with pytest.raises(ttc.TTCError, match="cannot be pickled; save it with"):
        pickle.dumps(processes)
