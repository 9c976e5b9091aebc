"""The engine: shows a method the images of a stream, each once a pass and never a label, and keeps what it answers."""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ttc.bench import method_specs, metrics, scenarios
from ttc.bench.cost import Cost, Meter
from ttc.bench.protocol import Protocol
from ttc.bench.scenarios import Batch
from ttc.bench.source_cache import source_logits
from ttc.bench.spec import Spec
from ttc.bench.store import TRACE
from ttc.bench.observer import Observer
from ttc.core import Adapter
from ttc.data.images import Images, as_tensor
from ttc.errors import TTCError

LIVE = 3  # batches of a SOURCE cell that are run to be timed and to check the kept answers


@dataclass(frozen=True)
class Result:
    """What a cell found. Over several passes the figures are those of the last one; ``per_pass`` has the accuracies.

    ``trace`` has a row a batch and the columns of ``TRACE``, NaN where a method has no such thing. ``predictions`` and
    ``correct`` are those of the last pass, by domain and then by index, whatever the order of the stream.
    """

    accuracy: float
    nll: float
    ece: float
    per_class: list[float | None]
    per_domain: list[float]
    per_pass: list[float]
    cost: Cost
    trace: NDArray[np.float32]
    predictions: NDArray[np.uint16]
    correct: NDArray[np.bool_]
    warnings: tuple[str, ...]
    seconds: float


def evaluate(protocol: Protocol, domains: Sequence[Images], model: nn.Module, cache: Path | None = None) -> Result:
    """Run one cell: ``domains`` are the data in order of the protocol's corruptions, ``model`` the source model."""
    start = time.perf_counter()
    labels = [np.asarray(domain.labels, dtype=np.int64) for domain in domains]
    stream = list(scenarios.stream(Spec.read(protocol.scenario), labels, protocol.batch_size, protocol.seed))
    _check(stream, [len(there) for there in labels])
    answers = _Answers(labels, domains[0].num_classes, passes=1 + max(batch.epoch for batch in stream))
    meter, trace = Meter(), np.full((len(stream), len(TRACE)), np.nan, np.float32)
    with _seeded(protocol.seed), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        adapter = adapters.build(model, protocol.method, protocol.options)
        _warm_up(adapter, _tensor(protocol, domains[0].pixels([0])))
        observer = Observer(adapter)
        with meter.attached(adapter):
            answer = _source(protocol, domains, model, cache, adapter, meter) or _online(
                protocol, domains, adapter, meter
            )
            for row, batch in enumerate(stream):
                if batch.reset:
                    adapter.reset()
                trace[row] = answers.take(batch, answer(batch), observer)
    correct, predictions = answers.correct[-1], answers.predictions[-1]
    every = np.concatenate(labels)
    return Result(
        accuracy=float(correct.mean()),
        nll=float(answers.nll.mean()),
        ece=statistics.calibration_error(answers.confidence, correct),
        per_class=statistics.class_accuracy(correct, every, domains[0].num_classes),
        per_domain=[float(part.mean()) for part in np.split(correct, np.cumsum([len(there) for there in labels])[:-1])],
        per_pass=[float(part.mean()) for part in answers.correct],
        cost=meter.cost(adapter),
        trace=trace,
        predictions=predictions,
        correct=correct,
        warnings=tuple(dict.fromkeys(str(warning.message) for warning in caught)),
        seconds=time.perf_counter() - start,
    )


class _Answers:
    """What was answered about each image, by pass, domain and index."""

    def __init__(self, labels: Sequence[NDArray[np.int64]], num_classes: int, passes: int) -> None:
        self.labels, self.num_classes = np.concatenate(labels), num_classes
        self.starts = np.cumsum([0, *map(len, labels)])[:-1]
        self.correct = np.zeros((passes, len(self.labels)), dtype=np.bool_)
        self.predictions = np.zeros((passes, len(self.labels)), dtype=np.uint16)
        self.confidence, self.nll = np.zeros(len(self.labels)), np.zeros(len(self.labels))

    def take(self, batch: Batch, logits: Tensor, observer: Observer) -> NDArray[np.float32]:
        """Keep the answer to a batch; its row of the trace."""
        if logits.shape[1] < self.num_classes:
            raise TTCError(
                f"the model tells {logits.shape[1]} classes apart and the data has {self.num_classes}; "
                "choose a model that was trained for this data"
            )
        place = self.starts[batch.domain] + batch.image
        log_probability = logits.double().log_softmax(1).numpy()
        predicted = log_probability.argmax(1)
        labels, rows = self.labels[place], np.arange(len(place))
        self.predictions[batch.epoch, place] = predicted
        self.correct[batch.epoch, place] = predicted == labels
        self.confidence[place] = np.exp(log_probability[rows, predicted])
        self.nll[place] = -log_probability[rows, labels]
        entropy = -(np.exp(log_probability) * log_probability).sum(1).mean()
        return np.array([len(place), (predicted == labels).mean(), entropy, *observer.taken()], dtype=np.float32)


def _online(protocol: Protocol, domains: Sequence[Images], adapter: Adapter, meter: Meter) -> Callable[[Batch], Tensor]:
    def answer(batch: Batch) -> Tensor:
        images = _images(protocol, domains, batch)
        with meter.batch(len(images)):
            return adapter(images).cpu()

    return answer


def _source(
    protocol: Protocol, domains: Sequence[Images], model: nn.Module, cache: Path | None, adapter: Adapter, meter: Meter
) -> Callable[[Batch], Tensor] | None:
    """SOURCE answers from kept logits; the first batches are also run, for the cost and to check what was kept."""
    if protocol.method != "source":
        return None
    kept = [source_logits(protocol, domain, model, cache) for domain in domains]
    run = _online(protocol, domains, adapter, meter)

    def answer(batch: Batch) -> Tensor:
        rows = [kept[domain][index] for domain, index in zip(batch.domain, batch.image, strict=True)]
        logits = torch.from_numpy(np.stack(rows))
        if len(meter.milliseconds) < LIVE:
            live = run(batch).float()
            allowed = 1e-2 if protocol.dtype == "float32" else 0.5
            if not torch.allclose(live, logits, rtol=allowed, atol=allowed):
                raise TTCError(f"the source predictions kept in {cache} are not this model's; delete that directory")
        return logits

    return answer


def _images(protocol: Protocol, domains: Sequence[Images], batch: Batch) -> Tensor:
    """The images of a batch, in its order: float (B, 3, H, W) in [0, 1]."""
    first = domains[batch.domain[0]]
    if (batch.domain == batch.domain[0]).all():
        pixels = first.pixels(batch.image)
    else:
        pixels = np.empty((len(batch.image), *first.pixels(batch.image[:1]).shape[1:]), np.uint8)
        for domain in np.unique(batch.domain):
            there = batch.domain == domain
            pixels[there] = domains[domain].pixels(batch.image[there])
    return _tensor(protocol, pixels)


def _tensor(protocol: Protocol, pixels: NDArray[np.uint8]) -> Tensor:
    return as_tensor(pixels).to(protocol.device, getattr(torch, protocol.dtype))


def _warm_up(adapter: Adapter, like: Tensor) -> None:
    """Show the adapter two images of noise and reset it: what happens once is neither timed nor counted."""
    noise = torch.rand((2, *like.shape[1:]), generator=torch.Generator().manual_seed(0))
    adapter(noise.to(like))
    adapter.reset()


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """The global generator at ``seed`` for the block, and as it was afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _check(stream: Sequence[Batch], sizes: Sequence[int]) -> None:
    """Every image exactly once a pass, whatever a scenario does."""
    starts, total = np.cumsum([0, *sizes])[:-1], sum(sizes)
    for epoch in range(1 + max(batch.epoch for batch in stream)):
        shown = [starts[batch.domain] + batch.image for batch in stream if batch.epoch == epoch]
        counts = np.bincount(np.concatenate(shown or [np.zeros(0, np.int64)]), minlength=total)
        if len(counts) != total or (counts != 1).any():
            raise TTCError(f"a scenario must show every image once a pass; pass {epoch} of this one does not")
