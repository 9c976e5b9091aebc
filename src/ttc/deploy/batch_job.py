"""Batch jobs, the work of ``ttc adapt``: adapt over a set of images and write predictions, resumable at any moment."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ttc.core import Adapter
from ttc.core.processes import Processes
from ttc.data import as_tensor
from ttc.deploy.guard import Guard
from ttc.deploy.input_images import InputImages
from ttc.deploy.job_folder import JobFolder, Progress
from ttc.deploy.job_reader import JobReader, order_images
from ttc.deploy.job_results import NoWriter, ResultWriter
from ttc.errors import TTCError


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
            self._predict(Guard(adapter) if self.settings.guard else adapter, NoWriter(progress), on_progress)
            return {}
        try:
            self.folder.path.mkdir(parents=True, exist_ok=True)
            with ResultWriter(self.folder, images, progress) as writer:
                predictor = Guard(adapter, on_event=writer.write_event) if self.settings.guard else adapter
                self._predict(predictor, writer, on_progress)
        except BaseException as error:
            with suppress(OSError):
                self.folder.remove_if_unused()
            if isinstance(error, OSError):
                raise TTCError(f"cannot write to {self.folder.path}: {error.strerror or error}") from error
            raise
        return writer.summary

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
        self, predictor: Guard | Adapter, writer: ResultWriter | NoWriter, on_progress: Callable[[int], None] | None
    ) -> None:
        if writer.done:
            self.folder.load_checkpoint(predictor, writer.done)
        adapter = predictor.adapter if isinstance(predictor, Guard) else predictor
        for batch in self._reader().read_batches(writer.done, writer.skipped, adapter.processes):
            if batch.index:
                logits = predictor(as_tensor(np.stack(batch.pixels)).to(adapter.device))
                writer.write_predictions(batch.index, logits.cpu())
            writer.done = batch.end
            writer.save_checkpoint_if_due(predictor)
            if on_progress is not None:
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
        return self._reader().read_last(count)

    def _reader(self) -> JobReader:
        order = order_images(self.total, shuffle=self.settings.shuffle, seed=self.settings.seed)
        return JobReader(self.images, order, self.settings.batch_size)
