"""Streams: order, micro-batches by count and time, backpressure, shutdown, and invalid images among valid ones."""

import gc
import math
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import ttc
from ttc.deploy import Guard, Stream


class Recorder:
    """Returns the number that each image carries, and records the sizes of the batches."""

    def __init__(self, gate: threading.Event | None = None) -> None:
        self.sizes: list[int] = []
        self.gate = gate

    def __call__(self, x: Tensor) -> Tensor:
        if self.gate is not None:
            assert self.gate.wait(10)
        self.sizes.append(len(x))
        if x.isnan().any():
            raise ttc.TTCError("NaN")
        return x[:, 0, 0, :1]


def numbered(first: int, count: int, side: int = 2) -> Tensor:
    return torch.arange(first, first + count).float().view(-1, 1, 1, 1).expand(-1, 3, side, side)


def assert_soon(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(0, 9), max_size=20), batch_size=st.integers(1, 6), capacity=st.integers(1, 12))
def test_predictions_come_in_order_and_complete(sizes: list[int], batch_size: int, capacity: int) -> None:
    """Size 0 stands for a single image (C, H, W)."""
    recorder, items, first = Recorder(), [], 0
    for size in sizes:
        images = numbered(first, max(1, size))
        items.append(images[0] if size == 0 else images)
        first += max(1, size)
    with Stream(recorder, batch_size=batch_size, max_wait=0.001, capacity=capacity) as stream:
        found = list(stream.map(items))
    assert [logits.shape for logits in found] == [(1,) if size == 0 else (size, 1) for size in sizes]
    assert torch.cat([logits.flatten() for logits in found] or [torch.empty(0)]).tolist() == list(range(first))
    assert sum(recorder.sizes) == first
    assert all(size <= batch_size for size in recorder.sizes)


def test_a_full_batch_does_not_wait_and_a_short_one_goes_when_its_time_is_up() -> None:
    recorder = Recorder()
    with Stream(recorder, batch_size=4, max_wait=30) as patient:
        assert patient.submit(numbered(0, 4)).result(timeout=10).flatten().tolist() == [0, 1, 2, 3]
    with Stream(recorder, batch_size=4, max_wait=0.02) as hasty:
        assert hasty.submit(numbered(7, 1)[0]).result(timeout=10).tolist() == [7]


def test_images_from_many_threads_share_batches() -> None:
    recorder = Recorder()
    with Stream(recorder, batch_size=8, max_wait=0.2) as stream, ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda i: stream.submit(numbered(i, 1)[0]).result(timeout=20).item(), range(64)))
    assert found == list(range(64))
    assert sum(recorder.sizes) == 64
    assert len(recorder.sizes) < 64


def test_submit_blocks_while_the_stream_is_full() -> None:
    gate = threading.Event()
    with Stream(Recorder(gate), batch_size=2, max_wait=0, capacity=4) as stream:
        first = stream.submit(numbered(0, 1))
        assert_soon(first.running)  # in the adapter, which waits at the gate
        queued = [stream.submit(numbered(i, 1)) for i in range(1, 5)]
        with pytest.raises(ttc.TTCError, match=r"the stream is full: 4 images are queued"):
            stream.submit(numbered(5, 1), timeout=0.05)
        gate.set()
        late = stream.submit(numbered(9, 1))
        assert [future.result(timeout=10).item() for future in [first, *queued, late]] == [0, 1, 2, 3, 4, 9]
        assert stream.submit(numbered(0, 30)).result(timeout=10).shape == (30, 1)  # larger than the capacity


def test_closing_predicts_what_is_queued() -> None:
    gate = threading.Event()
    stream = Stream(Recorder(gate), batch_size=3, max_wait=60)
    futures = [stream.submit(numbered(i, 1)) for i in range(10)]
    closing = threading.Thread(target=stream.close)
    closing.start()
    gate.set()
    closing.join(10)
    assert not closing.is_alive()
    assert [future.result(timeout=0).item() for future in futures] == list(range(10))
    with pytest.raises(ttc.TTCError, match="the stream is closed"):
        stream.submit(numbered(0, 1))
    stream.close()  # closing again does nothing


def test_an_invalid_request_fails_alone() -> None:
    with Stream(Recorder(), batch_size=6, max_wait=0.05) as stream:
        good, bad, after = stream.submit(numbered(1, 2)), stream.submit(numbered(3, 1) * float("nan")), None
        after = stream.submit(numbered(4, 3))
        assert good.result(timeout=10).flatten().tolist() == [1, 2]
        with pytest.raises(ttc.TTCError, match="NaN"):
            bad.result(timeout=10)
        assert after.result(timeout=10).flatten().tolist() == [4, 5, 6]


@pytest.mark.parametrize("broken", [lambda x: x[:0], lambda x: 1 / 0], ids=["too few rows", "error"])
def test_a_broken_adapter_fails_its_requests_and_the_stream_lives(broken: Callable[[Tensor], Tensor]) -> None:
    with Stream(broken, batch_size=2, max_wait=0) as stream:
        for _ in range(3):
            with pytest.raises((RuntimeError, ZeroDivisionError)):
                stream.submit(numbered(0, 1)).result(timeout=10)


def test_cancelled_requests_and_other_sizes() -> None:
    gate = threading.Event()
    recorder = Recorder(gate)
    with Stream(recorder, batch_size=4, max_wait=0) as stream:
        running = stream.submit(numbered(0, 1))
        assert_soon(running.running)
        dropped, small, large = stream.submit(numbered(1, 2)), stream.submit(numbered(3, 1)), None
        large = stream.submit(numbered(4, 1, side=3))
        assert dropped.cancel()
        gate.set()
        assert [future.result(timeout=10).item() for future in (running, small, large)] == [0, 3, 4]
    assert recorder.sizes == [1, 1, 1]  # images of different sizes do not share a batch


@pytest.mark.parametrize("images", [None, torch.zeros(3), torch.zeros(0, 3, 2, 2), [1]])
def test_what_is_no_image_is_rejected(images: Tensor) -> None:
    with Stream(Recorder()) as stream, pytest.raises(ttc.TTCError, match="expected an image"):
        stream.submit(images)


def test_settings_out_of_range_are_rejected() -> None:
    with pytest.raises(ttc.TTCError, match="batch_size must be a positive whole number"):
        Stream(Recorder(), batch_size=0)


def test_the_predictions_of_a_guarded_adapter_are_those_of_its_batches(model: nn.Module, stream: list[Tensor]) -> None:
    expected = ttc.adapt(model, "ttc", small_batches=True)
    guard = Guard(ttc.adapt(model, "ttc", small_batches=True))
    images = torch.cat(stream)[:40]
    with Stream(guard, batch_size=8, max_wait=60) as line:
        found = torch.stack(list(line.map(images)))
    assert torch.equal(found, torch.cat([expected(batch) for batch in images.split(8)]))


def total(x: Tensor) -> Tensor:
    return x.flatten(1).sum(1, keepdim=True)


@pytest.mark.parametrize(
    "settings",
    [
        *({"batch_size": math.inf}, {"batch_size": 2.5}, {"batch_size": True}, {"capacity": math.nan}),
        *({"max_wait": math.inf}, {"max_wait": math.nan}),
    ],
)
def test_numbers_that_are_no_sizes_are_rejected(settings: dict[str, Any]) -> None:
    with pytest.raises(ttc.TTCError, match=next(iter(settings))):
        Stream(total, **settings)


def test_a_callback_that_submits_beyond_the_capacity_does_not_deadlock() -> None:
    later: list[Future[Tensor]] = []
    with Stream(total, batch_size=1, max_wait=0, capacity=1) as stream:

        def more(done: object) -> None:
            later.extend(stream.submit(torch.ones(4, 3, 2, 2)) for _ in range(5))

        first = stream.submit(torch.ones(3, 2, 2))
        first.add_done_callback(more)
        first.result(timeout=30)
        stream.submit(torch.ones(3, 2, 2)).result(timeout=30)
    assert [found.result(timeout=30).shape for found in later] in ([(4, 1)] * 5, [])


def test_a_callback_may_close_the_stream() -> None:
    stream = Stream(total, batch_size=1, max_wait=0)
    future = stream.submit(torch.ones(3, 2, 2))
    future.add_done_callback(lambda done: stream.close())
    future.result(timeout=30)
    stream.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_worker_that_dies_fails_every_waiting_future(monkeypatch: pytest.MonkeyPatch) -> None:
    started, proceed = threading.Event(), threading.Event()

    def slow(x: Tensor) -> Tensor:
        started.set()
        proceed.wait(30)
        return total(x)

    stream = Stream(slow, batch_size=1, max_wait=0)
    futures = [stream.submit(torch.ones(3, 2, 2)) for _ in range(3)]
    assert started.wait(30)

    def broken() -> None:
        raise MemoryError

    monkeypatch.setattr(stream._worker, "_take_batch", broken)
    proceed.set()
    assert futures[0].result(timeout=30).tolist() == [12.0]
    for future in futures[1:]:
        with pytest.raises(ttc.TTCError, match=r"the worker of the stream failed \(MemoryError"):
            future.result(timeout=30)
    with pytest.raises(ttc.TTCError, match="closed because its worker failed"):
        stream.submit(torch.ones(3, 2, 2))
    stream.close()


def test_outputs_of_different_widths_fail_their_request_alone() -> None:
    widths = iter([1, 2, 1])
    with Stream(lambda x: torch.zeros(len(x), next(widths)), batch_size=2, max_wait=0) as stream:
        mixed, fine = stream.submit(torch.ones(4, 3, 2, 2)), stream.submit(torch.ones(3, 2, 2))
        with pytest.raises(RuntimeError):
            mixed.result(timeout=30)
        assert fine.result(timeout=30).shape == (1,)


def test_a_dropped_stream_predicts_what_is_queued_and_ends_its_thread() -> None:
    stream = Stream(total, batch_size=4, max_wait=0)
    thread, future = stream._worker._thread, stream.submit(torch.ones(3, 2, 2))
    del stream
    gc.collect()
    thread.join(30)
    assert not thread.is_alive()
    assert future.result(timeout=0).tolist() == [12.0]


def test_a_closed_stream_keeps_nothing_alive() -> None:
    class Owner:
        """Knows the stream that knows it."""

        def __init__(self) -> None:
            self.stream = Stream(self.predict)

        def predict(self, images: Tensor) -> Tensor:
            return images.flatten(1)

    owner = Owner()
    owner.stream.submit(torch.ones(3, 2, 2)).result()
    owner.stream.close()
    assert not owner.stream.is_open
    known = weakref.ref(owner)
    del owner
    gc.collect()
    assert known() is None
