"""Batch jobs, the work of ``ttc adapt``: adapt over a set of images and write predictions, resumable at any moment."""

import csv
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ttc import __version__
from ttc.core import Adapter, Event
from ttc.core.entropy import softmax_entropy
from ttc.core.processes import Processes
from ttc.data import as_tensor
from ttc.data.decoding import UnreadableImageError
from ttc.deploy.guard import Guard
from ttc.deploy.input_images import InputImages
from ttc.deploy.job_folder import JobFolder, Progress
from ttc.errors import TTCError
from ttc.files import atomic

CHECKPOINT_SECONDS = 20.0  # between checkpoints: at most this much work is repeated after an interruption


@dataclass(frozen=True)
class JobSettings:
    """Everything that decides the results of a job; a run with equal settings resumes an interrupted one.

    Args:
        model: The name of the model.
        images: Where the images come from.
        checkpoint: The weights that were loaded into the model.
        method: The adaptation method.
        head: The name of the model's final layer, where it was given.
        batch_size: Images per batch.
        small_batches: Whether the method was converted for small batches.
        guard: Whether to run under a :class:`ttc.Guard`.
        size: The size that images are resized to, where it was given.
        statistics: The input statistics, where they were given.
        labels: Whether class folders are labels.
        severity: The part of a CIFAR-C file.
        shuffle: Whether to shuffle the images; files sorted by class mislead adaptation.
        seed: The seed of the order.
        adaptation: The saved adaptation that the job starts from.
        shard: Which part of a larger set of images the job has, such as ``3/8``.
    """

    model: str
    images: str
    checkpoint: str = ""
    method: str = "ttc"
    head: str | None = None
    batch_size: int = 64
    small_batches: bool = False
    guard: bool = True
    size: int | None = None
    statistics: str = ""
    labels: bool = True
    severity: int = 5
    shuffle: bool = True
    seed: int = 0
    adaptation: str = ""
    shard: str = ""


class AdaptationJob:
    """Adapts over a set of images and writes predictions, events, a summary and the adaptation to a folder.

    Run the same job again after an interruption and it resumes from the last checkpoint, with the same results as an
    uninterrupted run.

    Args:
        settings: What decides the results.
        images: The images to predict.
        folder: Where the results go.

    Raises:
        TTCError: If the folder contains something other than this job.

    Example:
        A folder of images, one image per file::

            images = read_input_images(Path("photos"))
            job = AdaptationJob(JobSettings("mine", "photos"), images, Path("adapted"))
            summary = job.run(ttc.adapt(model, "ttc"))
    """

    def __init__(self, settings: JobSettings, images: InputImages, folder: Path) -> None:
        self.settings, self.images = settings, images
        self.folder = JobFolder(folder, asdict(settings), len(images.images))
        self.folder.read_progress()

    @property
    def total(self) -> int:
        """The number of images of the job."""
        return len(self.images.images)

    @property
    def done(self) -> int:
        """The number of images that were predicted or skipped at the last checkpoint."""
        return self.folder.read_progress().done

    @property
    def skipped(self) -> Mapping[str, str]:
        """Why files were skipped, by name, up to the last checkpoint."""
        return self.folder.read_progress().skipped

    def run(self, adapter: Adapter, on_progress: Callable[[int], None] | None = None) -> dict[str, Any]:
        """Predict the images that are left, and write everything; files that cannot be read are skipped.

        The folder is claimed by the first checkpoint: a run that fails before leaves nothing. Processes that share the
        stream (:func:`ttc.distributed`, ``batches="whole"``) decode a part of the images each; the first writes.

        Args:
            adapter: The adapter in the state to start from; if the job resumes, its checkpoint is loaded.
            on_progress: Called with the number of images predicted so far, after every batch.

        Returns:
            The summary: number of images, means of probability and entropy, images per predicted class, accuracy if the
            images are labelled, the guard's mode and number of events, and the reasons for skipped files. It is empty
            in all but the first of several processes.

        Raises:
            TTCError: If no image or the checkpoint cannot be read, or the folder cannot be written.
        """
        images = self.images.for_classes(adapter.model.num_classes)
        progress = self._agree_on_progress(adapter.processes)
        if adapter.processes.rank:
            self._predict(
                Guard(adapter) if self.settings.guard else adapter,
                _NoWriter(progress),
                on_progress or (lambda done: None),
            )
            return {}
        try:
            self.folder.path.mkdir(parents=True, exist_ok=True)
            with _ResultWriter(self.folder, images, progress) as writer:
                predictor = Guard(adapter, on_event=writer.write_event) if self.settings.guard else adapter
                self._predict(predictor, writer, on_progress or (lambda done: None))
            summary = _summarize(self.folder, images, predictor)
            with atomic(self.folder.summary) as part:
                content = {"job": self.folder.settings, "version": __version__, **summary}
                part.write_text(json.dumps(content, indent=2) + "\n")
        except BaseException as error:
            with suppress(OSError):
                self.folder.remove_if_unused()
            if isinstance(error, OSError):
                raise TTCError(f"cannot write to {self.folder.path}: {error.strerror or error}") from error
            raise
        return summary

    def _agree_on_progress(self, processes: Processes) -> Progress:
        """Read how far an earlier run got, in all processes before the first one writes."""
        if processes.size > 1 and not processes.whole_batches:
            raise TTCError(
                "a job over several processes takes whole batches: ttc.distributed(adapter, batches='whole')"
            )
        progress = self.folder.read_progress()
        if len(set(processes.exchange(str(progress.done)))) > 1:
            raise TTCError(f"the processes see different contents of {self.folder.path}: use a folder that all share")
        return progress

    def _predict(
        self, predictor: Guard | Adapter, writer: "_ResultWriter | _NoWriter", on_progress: Callable[[int], None]
    ) -> None:
        if writer.done:
            self.folder.load_checkpoint(predictor, writer.done)
        adapter = predictor.adapter if isinstance(predictor, Guard) else predictor
        for batch in self._batches(writer.done, writer.skipped, adapter.processes):
            if batch.index:
                logits = predictor(as_tensor(np.stack(batch.pixels)).to(adapter.device))
                writer.write_predictions(batch.index, logits.cpu())
            writer.done = batch.end
            writer.save_checkpoint_if_due(predictor)
            on_progress(writer.done)

    def read_summary(self) -> dict[str, Any]:
        """Read the summary that a finished run wrote; empty if there is none."""
        try:
            summary: dict[str, Any] = json.loads(self.folder.summary.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return summary

    def read_last(self, count: int) -> Tensor:
        """Read the last images of the job's order, those to which the adapter adapted most recently.

        Args:
            count: How many, at most; files that cannot be read do not count.

        Returns:
            The images (N, 3, H, W) in [0, 1], the last one first.

        Raises:
            TTCError: If no image can be read.
        """
        found: list[NDArray[np.uint8]] = []
        for i in reversed(self._order()):
            with suppress(UnreadableImageError):
                found.extend(self.images.images.pixels([int(i)]))
            if len(found) == count:
                break
        if not found:
            raise TTCError(f"none of the {self.total:,} images can be read")
        return as_tensor(np.stack(found))

    def _order(self) -> NDArray[np.int64]:
        if not self.settings.shuffle:
            return np.arange(self.total)
        return np.random.default_rng(self.settings.seed).permutation(self.total)

    def _batches(self, start: int, skipped: dict[str, str], processes: Processes) -> Iterator["_Batch"]:
        """Yield full batches of readable images; the last has the rest, and never a single image of several."""
        full: _Batch | None = None
        batch = _Batch([], [], start)
        for position, i, pixels in self._read(start, processes):
            if len(batch.index) == self.settings.batch_size:
                if full is not None:
                    yield full
                full, batch = batch, _Batch([], [], position)
            if isinstance(pixels, str):
                skipped[self.images.names[i]] = pixels
            else:
                batch.append(i, pixels, self.images.names)
            batch.end = position + 1
        if len(skipped) == self.total:
            raise TTCError(f"none of the {self.total:,} images can be read; the first: {next(iter(skipped.values()))}")
        if full is not None and len(batch.index) < min(2, self.settings.batch_size):
            batch = _Batch(full.index + batch.index, full.pixels + batch.pixels, batch.end)
        elif full is not None:
            yield full
        yield batch

    def _read(self, start: int, processes: Processes) -> Iterator[tuple[int, int, NDArray[np.uint8] | str]]:
        """Yield positions, indices and pixels in the order of the job; the reason in place of an unreadable image.

        Each of several processes decodes a part of the images and gets the others from those that decoded them.
        """
        order = self._order()
        step = self.settings.batch_size if processes.size > 1 else 1
        for first in range(start, self.total, step):
            positions = range(first, min(first + step, self.total))
            own = [self._decode(int(order[position])) for position in positions[processes.rank :: processes.size]]
            decoded = processes.exchange_objects(own)
            for offset, position in enumerate(positions):
                pixels = decoded[offset % processes.size][offset // processes.size]
                yield position, int(order[position]), pixels

    def _decode(self, i: int) -> NDArray[np.uint8] | str:
        try:
            (pixels,) = self.images.images.pixels([i])
        except UnreadableImageError as error:
            return error.reason
        decoded: NDArray[np.uint8] = pixels
        return decoded


@dataclass
class _Batch:
    """The positions and pixels of a batch, and the end of what was read for it."""

    index: list[int]
    pixels: list[NDArray[np.uint8]]
    end: int

    def append(self, i: int, pixels: NDArray[np.uint8], names: Sequence[str]) -> None:
        if self.pixels and pixels.shape != self.pixels[0].shape:
            (high, wide), (first_high, first_wide) = pixels.shape[:2], self.pixels[0].shape[:2]
            raise TTCError(
                f"the images differ in size ({names[self.index[0]]}: {first_wide} x {first_high} pixels, {names[i]}: "
                f"{wide} x {high}) and the model's input size is not known: give it with --size, such as --size 224"
            )
        self.index.append(i)
        self.pixels.append(pixels)


class _NoWriter:
    """Stands for the writer in processes that leave the results to the first one."""

    def __init__(self, progress: Progress) -> None:
        self.done, self.skipped = progress.done, dict(progress.skipped)

    def write_predictions(self, index: Sequence[int], logits: Tensor) -> None:
        pass

    def save_checkpoint_if_due(self, predictor: Guard | Adapter) -> None:
        pass


class _ResultWriter:
    """Appends predictions and events, and saves checkpoints."""

    def __init__(self, folder: JobFolder, images: InputImages, progress: Progress) -> None:
        self.folder, self.images = folder, images
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

    def __enter__(self) -> "_ResultWriter":
        return self

    def __exit__(self, *exception: object) -> None:
        self.predictions.close()
        self.events.close()

    def write_event(self, event: Event) -> None:
        self.events.write(json.dumps(event._asdict()) + "\n")

    def write_predictions(self, index: Sequence[int], logits: Tensor) -> None:
        logits = logits.double()
        probability, predicted = logits.softmax(1).max(1)
        values = zip(index, predicted.tolist(), probability.tolist(), softmax_entropy(logits).tolist(), strict=True)
        for i, best, confidence, entropy in values:
            row = [self.images.names[i], self.images.class_name(best), f"{confidence:.6f}", f"{entropy:.6f}"]
            label = [self.images.class_name(int(self.images.images.labels[i]))] if self.images.labelled else []
            self.rows.writerow([*row, *label])

    def save_checkpoint_if_due(self, predictor: Guard | Adapter) -> None:
        if self.done < self.folder.total and time.monotonic() - self.saved <= CHECKPOINT_SECONDS:
            return
        self.predictions.flush()
        self.events.flush()
        self.folder.save_checkpoint(predictor, self.done, self.skipped)
        self.saved = time.monotonic()


def _summarize(folder: JobFolder, images: InputImages, predictor: Guard | Adapter) -> dict[str, Any]:
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
    skipped = folder.read_progress().skipped
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
