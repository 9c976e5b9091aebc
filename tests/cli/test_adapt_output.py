"""What ``ttc adapt`` prints: the summary, skipped files, and how to resume."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.cli.conftest import Run, damage, rows
from ttc.cli.adapt_output import print_summary
from ttc.core import LostProcessError
from ttc.data import as_tensor
from ttc.deploy import batch_job, job_results
from ttc.errors import TTCError


def test_a_lost_process_is_reported_in_one_sentence(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(*_: object) -> None:
        raise LostProcessError("another process has stopped")

    monkeypatch.setattr(batch_job.AdaptationJob, "run", lose)
    with pytest.raises(TTCError, match=r"^another process has stopped; to resume, run the same command again$"):
        run(folder)


@pytest.mark.parametrize("interrupted", [False, True])
def test_unreadable_files_are_skipped_and_named(
    interrupted: bool, run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(folder)
    if interrupted:
        monkeypatch.setattr(job_results, "CHECKPOINT_SECONDS", 0.0)
        calls = iter(range(100))

        def stop_at_the_third(pixels: NDArray[np.uint8]) -> torch.Tensor:
            if next(calls) == 2:
                raise KeyboardInterrupt
            return as_tensor(pixels)

        monkeypatch.setattr(batch_job, "as_tensor", stop_at_the_third)
        assert run(folder).startswith("130 ")
    output = run(folder)
    assert output.startswith("1 ")
    assert "ttc: skipped cat/3b.jpg: not an image file" in output
    assert "ttc: skipped dog/0.png: " in output
    results = Path("adapted/resnet20-pets")
    assert len(rows(results / "predictions.csv")) == 30  # of 32 files
    assert set(json.loads((results / "summary.json").read_text())["skipped"]) == {"cat/3b.jpg", "dog/0.png"}
    again = run(folder)
    assert again.startswith("1 ")
    assert "is complete" in again
    assert "skipped dog/0.png" in again


def test_the_summary_fits_the_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    print_summary({"images": 90, "predicted_classes": {f"n{i:08}": 90 - i for i in range(90)}}, Path("x"), "csv")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    assert "n00000009: 81, 80 more" in " ".join(line.strip() for line in lines)
