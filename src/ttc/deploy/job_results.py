"""What a batch job writes: predictions and events as they come, checkpoints, and a summary at the end."""

import csv
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import Tensor

from ttc import __version__
from ttc.core import Adapter, Event
from ttc.core.entropy import softmax_entropy
from ttc.deploy.guard import Guard
from ttc.deploy.input_images import InputImages
from ttc.deploy.job_folder import JobFolder, Progress
from ttc.files import atomic

CHECKPOINT_SECONDS = 20.0  # between checkpoints: at most this much work is repeated after an interruption


class ResultWriter:
    """Appends predictions and events, and saves checkpoints.

    Args:
        folder: Where they go; what was written there after the last checkpoint is removed.
        images: The images that are predicted.
        progress: How far an earlier run got.

    Attributes:
        done: The number of images that were predicted or skipped.
        skipped: Why files were skipped, by name.
        summary: That of the predictions, once all are written.
    """

    def __init__(self, folder: JobFolder, images: InputImages, progress: Progress) -> None:
        self.folder, self.images = folder, images
        self.summary: dict[str, Any] = {}
        self.done, sizes, skipped = progress
        self.skipped = dict(skipped)
        if not self.done:
            folder.write_progress(Progress(0, {}))  # first, or a later run would take the files for another job's
        for path in (folder.predictions, folder.events):  # rows after the last checkpoint are written again
            with path.open("ab") as file:
                file.truncate(sizes.get(path.name, 0))
        self.predictions = folder.predictions.open("a", newline="", encoding="utf-8")
        self.events = folder.events.open("a", encoding="utf-8")
        self.rows = csv.writer(self.predictions)
        if not self.done:
            self.rows.writerow(["path", "class", "probability", "entropy", *(["label"] if images.labelled else [])])
        self.saved = time.monotonic()

    def __enter__(self) -> "ResultWriter":
        return self

    def __exit__(self, *exception: object) -> None:
        self.predictions.close()
        self.events.close()

    def write_event(self, event: Event) -> None:
        """Append an event of the guard."""
        self.events.write(json.dumps(event._asdict()) + "\n")

    def write_predictions(self, index: Sequence[int], logits: Tensor) -> None:
        """Append a row per image."""
        logits = logits.double()
        probability, predicted = logits.softmax(1).max(1)
        values = zip(index, predicted.tolist(), probability.tolist(), softmax_entropy(logits).tolist(), strict=True)
        for i, best, confidence, entropy in values:
            row = [self.images.names[i], self.images.class_name(best), f"{confidence:.6f}", f"{entropy:.6f}"]
            label = [self.images.class_name(int(self.images.images.labels[i]))] if self.images.labelled else []
            self.rows.writerow([*row, *label])

    def save_checkpoint_if_due(self, predictor: Guard | Adapter) -> None:
        """Save a checkpoint when the last one is old; at the end also the summary."""
        complete = self.done == self.folder.total
        if not complete and time.monotonic() - self.saved <= CHECKPOINT_SECONDS:
            return
        self.predictions.flush()
        self.events.flush()
        if complete:  # before progress says so, or a process killed in between would leave a job without summary
            self.summary = summarize_predictions(self.folder, self.images, predictor, self.skipped)
            content = {"job": self.folder.settings, "version": __version__, **self.summary}
            with atomic(self.folder.summary) as part:
                part.write_text(json.dumps(content, indent=2) + "\n")
        self.folder.save_checkpoint(predictor, self.done, self.skipped)
        self.saved = time.monotonic()


class NoWriter:
    """Stands for the writer in processes that leave the results to the first one."""

    def __init__(self, progress: Progress) -> None:
        self.done, self.skipped = progress.done, dict(progress.skipped)

    def write_predictions(self, index: Sequence[int], logits: Tensor) -> None:
        """Do nothing."""

    def save_checkpoint_if_due(self, predictor: Guard | Adapter) -> None:
        """Do nothing."""


def summarize_predictions(
    folder: JobFolder, images: InputImages, predictor: Guard | Adapter, skipped: Mapping[str, str]
) -> dict[str, Any]:
    """Return the summary of the predictions in a folder, as :meth:`AdaptationJob.run` does."""
    count, right, probability, entropy = 0, 0, 0.0, 0.0
    classes: Counter[str] = Counter()
    with folder.predictions.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):  # one at a time: a job may have millions
            count, classes[row["class"]] = count + 1, classes[row["class"]] + 1
            probability, entropy = probability + float(row["probability"]), entropy + float(row["entropy"])
            right += images.labelled and row["class"] == row["label"]
    summary: dict[str, Any] = {
        "images": count,
        "mean_probability": round(probability / count, 4),
        "mean_entropy": round(entropy / count, 4),
        "predicted_classes": dict(classes.most_common()),
    }
    if images.labelled:
        summary["accuracy"] = round(right / count, 4)
    if isinstance(predictor, Guard):
        summary["guard"] = predictor.mode
        summary["guard_events"] = len(folder.events.read_text(encoding="utf-8").splitlines())
    if skipped:
        summary["skipped"] = dict(skipped)
    return summary


def write_parquet(predictions: Path) -> None:
    """Write the predictions of a job as Parquet, beside the CSV file; needs pyarrow.

    Args:
        predictions: The ``predictions.csv`` of a finished job.
    """
    table = import_module("pyarrow.csv").read_csv(predictions)
    with atomic(predictions.with_suffix(".parquet")) as part:
        import_module("pyarrow.parquet").write_table(table, part)
