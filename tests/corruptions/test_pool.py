import errno
import os
import threading
from itertools import count, islice
from pathlib import Path

import pytest
import torch

from ttc.corruptions.pool import available_cores, explain_disk_errors, map_unordered
from ttc.errors import TTCError


def test_every_item_is_processed_once() -> None:
    assert sorted(map_unordered(lambda item, stop: item * item, range(50), 3)) == [i * i for i in range(50)]


def test_few_items_are_in_flight() -> None:
    begun = []

    def note(item: int, stop: threading.Event) -> int:
        begun.append(item)
        return item

    assert len(list(islice(map_unordered(note, count(), 2), 5))) == 5  # of endless work
    assert len(begun) < 20


def test_a_failure_stops_running_items() -> None:
    def until_stopped(item: int, stop: threading.Event) -> int:
        if item == 0:
            raise ValueError("the first one fails")
        assert stop.wait(20)
        return item

    with pytest.raises(ValueError, match="the first one fails"):
        list(map_unordered(until_stopped, range(4), 2))


def test_the_number_of_torch_threads_is_restored() -> None:
    before = torch.get_num_threads()
    assert list(map_unordered(lambda item, stop: torch.get_num_threads(), range(1), 1)) == [1]
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.ENOSPC, "no space left for out: free some space, then run the same command again to resume"),
        (errno.EROFS, r"cannot write to out \(Read-only file system\); choose another folder"),
    ],
)
def test_disk_errors_are_explained(number: int, sentence: str) -> None:
    with pytest.raises(TTCError, match=sentence), explain_disk_errors(Path("out")):
        raise OSError(number, os.strerror(number))


def test_other_errors_pass_unchanged() -> None:
    with pytest.raises(OSError, match="Input/output error"), explain_disk_errors(Path("out")):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_at_least_one_core_is_available() -> None:
    assert 1 <= available_cores() <= (os.cpu_count() or 1)
