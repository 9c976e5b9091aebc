"""What the writers write, read back."""

import csv
import importlib.util
import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ttc
from ttc.core import BatchRecord, Event
from ttc.deploy import CSVWriter, JSONLinesWriter, Policy, PrometheusWriter, TensorBoardWriter, prometheus_text

RECORD = BatchRecord(3, 72, torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]), {"level": 1})


def test_json_lines_of_a_guarded_run(model: nn.Module, stream: list[Tensor], tmp_path: Path) -> None:
    guard = ttc.Guard(ttc.adapt(model, "ttc"), Policy(source_fraction=0))
    with JSONLinesWriter(tmp_path / "logs" / "run.jsonl") as writer:
        run = guard.run(stream, callbacks=[writer])
        next(run)
        guard.freeze()
        run.finish()
    rows = [json.loads(line) for line in (tmp_path / "logs" / "run.jsonl").read_text().splitlines()]
    assert [row["kind"] for row in rows] == ["batch", "event", *["batch"] * 4]
    assert [row["images"] for row in rows] == [24, 24, 48, 72, 96, 120]
    assert rows[1] == {"kind": "event", "images": 24, "action": "freeze", "reason": "requested"}
    assert rows[2]["frozen"] == 1


def test_json_has_no_nan(tmp_path: Path) -> None:
    with JSONLinesWriter(tmp_path / "run.jsonl") as writer:
        writer.on_batch(BatchRecord(1, 2, RECORD.logits, None, {"parameter_drift": math.nan}))
    assert json.loads((tmp_path / "run.jsonl").read_text())["parameter_drift"] is None


def test_csv_rows_are_appended_under_one_header(tmp_path: Path) -> None:
    for _ in range(2):
        with CSVWriter(tmp_path / "run.csv") as writer:
            writer.on_batch(RECORD)
            writer.on_event(Event(72, "warn", "left out"))
    with (tmp_path / "run.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2
    assert {name: float(value) for name, value in rows[1].items()} == pytest.approx(RECORD.metrics)
    with CSVWriter(tmp_path / "run.csv") as writer:
        writer.on_batch(BatchRecord(1, 2, RECORD.logits))  # without labels and signals: empty fields
        with pytest.raises(ttc.TTCError, match="has no column entropy_of_source; write to a new file"):
            writer.on_batch(BatchRecord(1, 2, RECORD.logits, None, {"entropy_of_source": 1.0}))


def test_prometheus_text_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "ttc.prom"
    writer = PrometheusWriter(path, every=3, labels={"camera": 'north "3"'})
    writer.on_batch(BatchRecord(1, 2, RECORD.logits))
    assert not path.exists()
    writer.on_batch(RECORD)
    writer.on_event(Event(72, "rollback", "why"))
    writer.on_event(Event(72, "rollback", "why"))
    lines = path.read_text().splitlines()
    assert r'ttc_level{camera="north \"3\""} 1' in lines
    assert r'ttc_actions_total{camera="north \"3\"",action="rollback"} 2' in lines
    assert len([line for line in lines if line.startswith("ttc_images{")]) == 1
    with pytest.raises(ttc.TTCError, match="every is a positive number of batches, got 0"):
        PrometheusWriter(path, every=0)


def test_a_guards_stats_are_prometheus_text(model: nn.Module, stream: list[Tensor]) -> None:
    guard = ttc.Guard(ttc.adapt(model, "ttc"))
    guard(stream[0])
    text = prometheus_text(guard.stats)
    assert "ttc_images 24\n" in text
    assert text.count("# TYPE") == len(guard.stats)
    assert prometheus_text({"a": math.nan, "b": math.inf, "c": -math.inf}).split("\n")[1::2] == [
        "ttc_a NaN",
        "ttc_b +Inf",
        "ttc_c -Inf",
    ]


def test_a_file_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ttc.TTCError, match=r"cannot write .*run.csv"):
        CSVWriter(tmp_path / "file" / "run.csv")


def test_tensorboard_is_written_or_missed(tmp_path: Path) -> None:
    if importlib.util.find_spec("tensorboard") is None:
        with pytest.raises(ttc.TTCError, match=r"needs the package tensorboard .*: pip install tensorboard"):
            TensorBoardWriter(tmp_path)
        return
    with TensorBoardWriter(tmp_path) as writer:
        writer.on_batch(RECORD)
        writer.on_event(Event(72, "warn", "why"))
    assert [file for file in tmp_path.iterdir() if file.name.startswith("events.out.tfevents")]
