"""Run an adapter or a guard over data as people have it."""

import sys
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ttc.core.callbacks import CallbackList, Event
from ttc.core.data_items import BatchReader, Data
from ttc.core.representation import Rows, counted, html_table, text_table
from ttc.errors import TTCError

SORTED = 16  # images of one class in the first batch that are no coincidence


@dataclass
class RunSummary:
    """What a run has predicted so far.

    Args:
        batches: Batches predicted.
        images: Images predicted.
        labelled: Images with a known label.
        correct: Of these, how many were predicted right.
        class_counts: How often each class was predicted.
        seconds: Time spent on predictions and on adaptation, without that of loading the data.
        events: What the guard did meanwhile.
    """

    batches: int = 0
    images: int = 0
    labelled: int = 0
    correct: int = 0
    class_counts: list[int] = field(default_factory=list)
    seconds: float = 0.0
    events: list[Event] = field(default_factory=list)

    @property
    def accuracy(self) -> float | None:
        """The fraction of labelled images predicted right, None without labels."""
        return self.correct / self.labelled if self.labelled else None

    def observe(self, logits: Tensor, labels: Tensor | None) -> None:
        """Count a batch."""
        self.batches += 1
        self.images += len(logits)
        classes = logits.argmax(1).cpu()
        counts = classes.bincount(minlength=logits.shape[1]).tolist()
        self.class_counts = [a + b for a, b in zip(self.class_counts or [0] * len(counts), counts, strict=True)]
        if labels is not None:
            known = labels >= 0
            self.labelled += int(known.sum())
            self.correct += int((classes == labels)[known].sum())

    def summary_rows(self) -> Rows:
        """Return the summary as named values."""
        rows = [("images", f"{self.images:,} in {counted(self.batches, 'batch', 'batches')}, {self.seconds:.1f} s")]
        if self.accuracy is not None:
            rows.append(("accuracy", f"{100 * self.accuracy:.1f} % ({self.correct:,} of {self.labelled:,})"))
        if self.images:
            largest = max(self.class_counts)
            name = self.class_counts.index(largest)
            rows.append(("most predicted", f"class {name}, {100 * largest / self.images:.1f} % of the images"))
        rows += [
            ("event", f"{event.action} after {event.images:,} images: {event.reason}") for event in self.events[-5:]
        ]
        return rows

    def __repr__(self) -> str:
        return text_table("run", self.summary_rows())

    def _repr_html_(self) -> str:
        return html_table("run", self.summary_rows())


class Run:
    """The predictions for the batches of some data, one after another; made by ``adapter.run`` and ``guard.run``.

    Iterate over it for the logits (N, K) of each batch, in order, and read :attr:`summary` at any time; or call
    :meth:`finish` for the summary alone. A batch is loaded and predicted when it is asked for.

    Args:
        target: What predicts.
        model: Its model, whose device and dtype the images are converted to.
        data: Any iterable of batches or of single images.
        reader: Reads the batches.
        callbacks: Told of every batch, with labels, and of every event.
        progress: Whether to show progress; ``None`` for on a terminal only.
    """

    def __init__(
        self,
        target: "Runnable",
        model: nn.Module,
        data: Data,
        *,
        reader: BatchReader,
        callbacks: Iterable[Any] = (),
        progress: bool | None = None,
    ) -> None:
        self.summary = RunSummary()
        self.callbacks = CallbackList(callbacks)
        self._target, self._weight = target, next(model.parameters())
        self._iterator = self._predictions(data, reader, progress)

    def __iter__(self) -> Iterator[Tensor]:
        return self

    def __next__(self) -> Tensor:
        return next(self._iterator)

    def finish(self) -> RunSummary:
        """Predict all that is left, and return the summary."""
        for _ in self:
            pass
        return self.summary

    def _predictions(self, data: Data, reader: BatchReader, progress: bool | None) -> Iterator[Tensor]:
        listeners = CallbackList([*self.callbacks.members, _EventRecorder(self.summary)])
        with ExitStack() as stack:
            stack.enter_context(self._target.callbacks.forward_events(listeners))
            show = stack.enter_context(_Progress(data, progress))
            for images, labels in reader.read(data):
                if not self.summary.batches:
                    _warn_if_sorted(labels)
                logits = self._predict(images)
                self.summary.observe(logits, labels)
                if self.callbacks:
                    self.callbacks.report_batch(logits, labels, getattr(self._target, "stats", None))
                show(reader.items, self.summary)
                yield logits

    def _predict(self, images: Tensor) -> Tensor:
        if images.is_floating_point():
            images = images.to(self._weight.device, self._weight.dtype)
        began = time.perf_counter()
        try:
            return self._target(images)
        except TTCError as error:
            raise TTCError(f"batch {self.summary.batches + 1}: {error}") from error
        finally:
            self.summary.seconds += time.perf_counter() - began

    def __repr__(self) -> str:
        return repr(self.summary)

    def _repr_html_(self) -> str:
        return self.summary._repr_html_()


class Runnable(ABC):
    """What predicts batches, and can therefore be run over data.

    Attributes:
        callbacks: Told of every batch and event.
    """

    def __init__(self, callbacks: Iterable[Any] = ()) -> None:
        super().__init__()
        self.callbacks = CallbackList(callbacks)

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """Predict a batch."""

    @abstractmethod
    def predicting_model(self) -> nn.Module:
        """Return the model, whose device, dtype and number of channels the images are converted to."""

    def run(
        self,
        data: Data,
        *,
        batch_size: int = 64,
        transform: Callable[[Any], Any] | None = None,
        image_key: str | None = None,
        label_key: str | None = None,
        callbacks: Iterable[Any] = (),
        progress: bool | None = None,
    ) -> Run:
        """Predict all of some data, adapting to it batch by batch.

        Args:
            data: A ``DataLoader`` of pairs ``(images, labels)``, dicts or tensors; a data set of single images, such as
                an ``ImageFolder`` or a split of Hugging Face ``datasets``; any iterable of these. Shuffle what is
                sorted by class.
            batch_size: How many single images make a batch; batches stay as they are.
            transform: Applied to each image, or to each batch where the data yields batches.
            image_key: The key of the images, where items are dicts and it is not a usual one, as ``"pixel_values"`` is.
            label_key: The same for labels.
            callbacks: Told of every batch, with labels (:class:`ttc.core.Callback`).
            progress: Whether to show progress; only on a terminal unless given.

        Returns:
            The run: iterate over it for the logits (N, K) of each batch, or call ``finish()`` for the summary alone.

        Raises:
            TTCError: If a batch is invalid, when it is reached.

        Example:
            >>> import ttc
            >>> adapter = ttc.adapt(ttc.models.build("resnet20"), "tent")
            >>> import torch
            >>> images, labels = torch.rand(8, 3, 32, 32), torch.zeros(8, dtype=torch.long)
            >>> run = adapter.run(torch.utils.data.TensorDataset(images, labels), batch_size=4)
            >>> [tuple(logits.shape) for logits in run]
            [(4, 10), (4, 10)]
            >>> run.summary.labelled
            8
        """
        model = self.predicting_model()
        first = next((module for module in model.modules() if isinstance(module, nn.Conv2d)), None)
        mode = "L" if first is not None and first.in_channels == 1 else "RGB"
        reader = BatchReader(
            batch_size=batch_size, transform=transform, image_key=image_key, label_key=label_key, mode=mode
        )
        return Run(self, model, data, reader=reader, callbacks=callbacks, progress=progress)


class _EventRecorder:
    def __init__(self, summary: RunSummary) -> None:
        self.on_event = summary.events.append


class _Progress:
    """A bar on a terminal; elsewhere nothing, or one line at the end if progress was asked for."""

    def __init__(self, data: Data, wanted: bool | None) -> None:
        self.total = _length(data)
        self.bar = sys.stderr.isatty() and wanted is not False
        self.line = bool(wanted) and not self.bar
        self.summary: RunSummary | None = None

    def __enter__(self) -> Callable[[int, RunSummary], None]:
        if self.bar:
            from rich.console import Console
            from rich.progress import Progress

            self.rich = Progress(
                console=Console(stderr=True), auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            )
            self.task = self.rich.add_task("adapting", total=self.total)
            self.rich.start()
        return self._show

    def _show(self, items: int, summary: RunSummary) -> None:
        self.summary = summary
        if self.bar:
            accuracy = "" if summary.accuracy is None else f" {100 * summary.accuracy:.1f} %"
            self.rich.update(self.task, completed=items, description=f"adapting{accuracy}", refresh=True)

    def __exit__(self, *exception: object) -> None:
        if self.bar:
            self.rich.stop()
        if self.line and self.summary is not None:
            print("; ".join(f"{name} {value}" for name, value in self.summary.summary_rows()), file=sys.stderr)


def _warn_if_sorted(labels: Tensor | None) -> None:
    """Warn of a first batch of one class, which data sets with a folder per class begin with."""
    if labels is not None and len(labels) >= SORTED and int(labels[0]) >= 0 and bool((labels == labels[0]).all()):
        warnings.warn(
            f"all {len(labels)} images of the first batch are of class {int(labels[0])}, and data sorted by class "
            "misleads adaptation: shuffle it, such as with DataLoader(data, batch_size=64, shuffle=True)",
            stacklevel=4,
        )


def _length(data: object) -> int | None:
    try:
        return len(data)  # type: ignore[arg-type]
    except TypeError:  # an iterator, or a loader of a stream
        return None
