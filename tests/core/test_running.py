"""Runs over data: predictions in order, a summary, callbacks and progress."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import ttc
from ttc.core import BatchRecord, Event, RunSummary
from ttc.deploy import Policy

Images = Callable[[int, float, int], tuple[Tensor, Tensor]]


class Recorder:
    def __init__(self) -> None:
        self.records: list[BatchRecord] = []
        self.events: list[Event] = []
        self.on_batch, self.on_event = self.records.append, self.events.append


def test_a_run_predicts_as_a_loop_does(model: nn.Module, labelled: Images) -> None:
    images, labels = labelled(100, 0.5, 4)
    adapter, loop = ttc.adapt(model, "ttc"), ttc.adapt(model, "ttc")
    run = adapter.run(DataLoader(TensorDataset(images, labels), batch_size=24))
    expected = [loop(batch) for batch in images.split(24)]
    for found, logits in zip(run, expected, strict=True):
        assert torch.equal(found, logits)
    correct = (torch.cat(expected).argmax(1) == labels).sum().item()
    assert (run.summary.batches, run.summary.images, run.summary.labelled) == (5, 100, 100)
    assert run.summary.correct == correct
    assert run.summary.accuracy == correct / 100
    assert run.summary.class_counts == torch.cat(expected).argmax(1).bincount(minlength=4).tolist()
    assert run.summary.seconds > 0


def test_a_run_is_lazy(model: nn.Module, stream: list[Tensor]) -> None:
    adapter = ttc.adapt(model, "ttc")
    run = adapter.run(iter(stream))
    next(run)
    assert run.summary.batches == 1
    assert run.finish().batches == 5


def test_without_labels_there_is_no_accuracy(model: nn.Module, stream: list[Tensor]) -> None:
    summary = ttc.adapt(model, "ttc").run(stream).finish()
    assert summary.accuracy is None
    assert "accuracy" not in repr(summary)


def test_images_are_converted_to_the_models_dtype(model: nn.Module, stream: list[Tensor]) -> None:
    run = ttc.adapt(model, "ttc").run([stream[0].double(), (stream[1] * 255).clamp(0, 255).to(torch.uint8)])
    assert {logits.dtype for logits in run} == {torch.float32}


def test_an_invalid_batch_is_numbered(model: nn.Module, stream: list[Tensor]) -> None:
    run = ttc.adapt(model, "ttc").run([stream[0], stream[1] / 0])
    next(run)
    with pytest.raises(ttc.TTCError, match=r"^batch 2: the images contain NaN"):
        next(run)


def test_callbacks_of_a_run_know_the_labels(model: nn.Module, labelled: Images) -> None:
    recorder, images = Recorder(), labelled(48, 0.5, 4)
    guard = ttc.Guard(ttc.adapt(model, "ttc"), Policy(source_fraction=0))
    run = guard.run(TensorDataset(*images), batch_size=24, callbacks=[recorder])
    next(run)
    guard.freeze()
    summary = run.finish()
    assert all("accuracy" in record.metrics and "level" in record.metrics for record in recorder.records)
    assert [record.batch for record in recorder.records] == [1, 2]
    assert recorder.events == summary.events == [Event(24, "freeze", "requested")]
    guard.resume()
    assert len(recorder.events) == 1  # the run is over
    assert not guard.callbacks


def test_a_summary_is_a_short_table() -> None:
    summary = RunSummary(2, 100, 50, 40, [10, 90], 1.5, [Event(50, "rollback", "<why>")])
    assert repr(summary).splitlines() == [
        "run",
        "  images          100 in 2 batches, 1.5 s",
        "  accuracy        80.0 % (40 of 50)",
        "  most predicted  class 1, 90.0 % of the images",
        "  event           rollback after 50 images: <why>",
    ]
    assert "<td>rollback after 50 images: &lt;why&gt;</td>" in summary._repr_html_()


def test_progress_is_one_line_off_a_terminal(
    model: nn.Module, stream: list[Tensor], capsys: pytest.CaptureFixture[str]
) -> None:
    adapter = ttc.adapt(model, "ttc")
    adapter.run(stream).finish()
    assert capsys.readouterr() == ("", "")
    adapter.run(stream, progress=True).finish()
    out, shown = capsys.readouterr()
    assert out == ""
    assert shown.startswith("images 120 in 5 batches")
    assert shown.count("\n") == 1


def test_progress_is_a_bar_on_a_terminal(
    model: nn.Module, stream: list[Tensor], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    ttc.adapt(model, "ttc").run(stream).finish()
    assert "100%" in capsys.readouterr().err
    ttc.adapt(model, "ttc").run(stream, progress=False).finish()
    assert capsys.readouterr().err == ""


def test_data_sorted_by_class_is_warned_of(model: nn.Module, labelled: Images) -> None:
    images, labels = labelled(120, 0.5, 4)
    order = labels.argsort(stable=True)
    with pytest.warns(UserWarning, match=r"all 16 images .* class 0, and data sorted by class .*: shuffle it"):
        ttc.adapt(model, "norm").run(DataLoader(TensorDataset(images[order], labels[order]), batch_size=16)).finish()
    ttc.adapt(model, "norm").run(DataLoader(TensorDataset(images, labels), batch_size=16)).finish()
    ttc.adapt(model, "norm").run([(images[:16], torch.full((16,), -1))]).finish()  # labels that are secret
