"""Who is told of what."""

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.core import BatchRecord, Callback, CallbackList, Event
from ttc.deploy import Policy


class Recorder(Callback):
    def __init__(self) -> None:
        self.records: list[BatchRecord] = []
        self.events: list[Event] = []

    def on_batch(self, record: BatchRecord) -> None:
        self.records.append(record)

    def on_event(self, event: Event) -> None:
        self.events.append(event)


class Broken(Callback):
    def on_batch(self, record: BatchRecord) -> None:
        raise OSError("no space left")


def test_an_adapter_reports_batches_and_resets(model: nn.Module, stream: list[Tensor]) -> None:
    adapter, recorder = ttc.adapt(model, "ttc"), Recorder()
    adapter.callbacks.add(recorder)
    logits = [adapter(batch) for batch in stream]
    adapter.predict(stream[0])  # nothing is learned, nothing is reported
    adapter.reset()
    assert [record.batch for record in recorder.records] == [1, 2, 3, 4, 5]
    assert [record.images for record in recorder.records] == [24, 48, 72, 96, 120]
    assert all(torch.equal(record.logits, found) for record, found in zip(recorder.records, logits, strict=True))
    assert recorder.events == [Event(120, "reset", "requested")]
    adapter.callbacks.remove(recorder)
    adapter(stream[0])
    assert len(recorder.records) == 5


def test_a_guard_reports_signals_and_events(model: nn.Module, stream: list[Tensor]) -> None:
    recorder = Recorder()
    guard = ttc.Guard(ttc.adapt(model, "ttc"), Policy(source_fraction=0), callbacks=[recorder])
    guard(stream[0])
    guard.freeze()
    guard(stream[1])  # without adapting, and reported all the same
    assert [record.stats["adapting"] for record in recorder.records] == [1, 0]
    assert recorder.records[1].metrics["parameter_drift"] == guard.stats["parameter_drift"]
    assert recorder.events == [Event(24, "freeze", "requested")]


def test_the_numbers_of_a_batch() -> None:
    logits = torch.tensor([[10.0, 0.0], [10.0, 0.0], [0.0, 10.0], [0.0, 0.0]])
    metrics = BatchRecord(2, 9, logits, torch.tensor([0, 1, -1, 0]), {"level": 1}).metrics
    assert (metrics["batch"], metrics["images"], metrics["batch_size"], metrics["level"]) == (2, 9, 4, 1)
    assert metrics["accuracy"] == pytest.approx(2 / 3)
    assert metrics["largest_class_fraction"] == 0.75
    assert metrics["entropy"] == pytest.approx(torch.tensor(2.0).log().item() / 4, abs=1e-3)
    assert "accuracy" not in BatchRecord(1, 4, logits, torch.full((4,), -1)).metrics


def test_a_broken_callback_does_not_stop_predictions(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "ttc")
    adapter.callbacks.add(Broken())
    with pytest.warns(UserWarning, match="on_batch of the callback Broken failed: OSError: no space left"):
        logits = adapter(stream[0])
    assert torch.equal(logits, ttc.adapt(model, "ttc")(stream[0]))


@pytest.mark.parametrize("callback", [print, 3, Recorder])
def test_what_is_no_callback_is_rejected(callback: object) -> None:
    with pytest.raises(ttc.TTCError, match=r"a callback has on_batch\(record\) or on_event\(event\), \w+ has neither"):
        CallbackList([callback])


def test_copies_and_pickles_have_no_callbacks(model: nn.Module) -> None:
    adapter = ttc.adapt(model, "ttc")
    adapter.callbacks.add(Recorder())
    assert not copy.deepcopy(adapter).callbacks
    assert not pickle.loads(pickle.dumps(adapter)).callbacks
    assert adapter.callbacks
