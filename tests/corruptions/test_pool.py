import threading
from itertools import count, islice

import pytest
import torch

from ttc.corruptions.pool import map_unordered


def test_everything_is_finished_once() -> None:
    assert sorted(map_unordered(lambda item, stop: item * item, range(50), 3)) == [i * i for i in range(50)]


def test_little_is_held_at_a_time() -> None:
    begun = []

    def note(item: int, stop: threading.Event) -> int:
        begun.append(item)
        return item

    assert len(list(islice(map_unordered(note, count(), 2), 5))) == 5  # of endless work
    assert len(begun) < 20


def test_an_early_end_stops_what_is_running() -> None:
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
