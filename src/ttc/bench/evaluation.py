"""The engine: shows a method the images of a stream, each once per pass and never a label, and scores its outputs."""

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
from ttc.bench.cost import Cost, Meter, clock_for
from ttc.bench.observer import Observer
from ttc.bench.precision import stored_type
from ttc.bench.protocol import Protocol
from ttc.bench.scenarios import Batch
from ttc.bench.source_cache import source_logits
from ttc.bench.spec import Spec
from ttc.bench.store import TRACE
from ttc.clustering import softmax_entropy
from ttc.core import Adapter
from ttc.data.images import Images, as_tensor
from ttc.errors import TTCError

LIVE = 3  # batches of a SOURCE cell that are run, to time them and to check the cached predictions


@dataclass(frozen=True)
class Result:
    """The result of a cell. Over several passes the figures are those of the last one.

    Args:
        accuracy: The fraction of images whose label was predicted.
        nll: The mean negative log-likelihood of the labels.
        ece: The expected calibration error.
        per_class: The accuracy per class, None where no image has that class.
        per_domain: The accuracy per domain.
        per_pass: The accuracy per pass.
        cost: Passes, time and memory.
        trace: One row per batch with the columns of ``TRACE``, NaN where a method has no such value.
        predictions: The predicted class of each image, by domain and then by index, whatever the order of the stream;
            a scenario that leaves images out has those it shows.
        correct: Whether it is the label.
        warnings: The warnings that were raised, each once.
        seconds: The time the cell took.
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


def evaluate(
    protocol: Protocol,
    domains: Sequence[Images],
    model: nn.Module,
    cache: Path | None = None,
    source_split: Images | None = None,
) -> Result:
    """Run one cell.

    Args:
        protocol: What to run.
        domains: The images, in the order of the protocol's corruptions.
        model: The source model.
        cache: The directory of cached source predictions; None computes them.
        source_split: The clean images of the protocol's source split; a method gets source images from nowhere else.

    Returns:
        The accuracy, calibration, cost, trace and predictions.

    Raises:
        TTCError: If the method rejects the model or a batch, or the source split is not the protocol's.
    """
    if (source_split.checksum if source_split else "") != protocol.source_checksum:
        raise TTCError(
            f"the protocol states the source split '{protocol.source_split}'; pass these images and no others"
        )
    start = time.perf_counter()
    labels = [np.asarray(domain.labels, dtype=np.int64) for domain in domains]
    scenario = Spec.read(protocol.scenario)
    stream = list(scenarios.stream(scenario, labels, protocol.batch_size, protocol.seed))
    sizes = [len(there) for there in labels]
    shown = _images_shown(stream, sizes, all_of_them=not scenarios.SCENARIOS[scenario.name].subsamples)
    scores = _Scores(labels, domains[0].num_classes, passes=1 + max(batch.epoch for batch in stream))
    meter = Meter(clock_for(protocol.device, protocol.threads))
    trace = np.full((len(stream), len(TRACE)), np.nan, np.float32)
    with _seeded(protocol.seed), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        source = None if source_split is None else _tensor(protocol, source_split.pixels(range(len(source_split))))
        adapter = method_specs.build(model, protocol.method, protocol.options, source, dtype=protocol.dtype)
        _warm_up(adapter, _tensor(protocol, domains[0].pixels([0])))
        observer = Observer(adapter)
        with meter.attached(adapter):
            predict = _predict_from_cache if protocol.method == "source" else _predict_online
            predict_batch = predict(protocol, domains, adapter, meter, model, cache)
            for row, batch in enumerate(stream):
                if batch.reset:
                    adapter.reset()
                trace[row] = (*scores.add(batch, predict_batch(batch)), *observer.pop())
    correct, predictions = scores.correct[-1][shown], scores.predictions[-1][shown]
    kept = [int(part.sum()) for part in np.split(shown, np.cumsum(sizes)[:-1])]
    return Result(
        accuracy=float(correct.mean()),
        nll=float(scores.nll[shown].mean()),
        ece=metrics.calibration_error(scores.confidence[shown], correct),
        per_class=metrics.class_accuracy(correct, np.concatenate(labels)[shown], domains[0].num_classes),
        per_domain=[float(part.mean()) for part in np.split(correct, np.cumsum(kept)[:-1])],
        per_pass=[float(part[shown].mean()) for part in scores.correct],
        cost=meter.cost(adapter),
        trace=trace,
        predictions=predictions,
        correct=correct,
        warnings=tuple(dict.fromkeys(str(warning.message) for warning in caught)),
        seconds=time.perf_counter() - start,
    )


class _Scores:
    """The predictions for each image and how good they are, by pass, domain and index."""

    def __init__(self, labels: Sequence[NDArray[np.int64]], num_classes: int, passes: int) -> None:
        self.labels, self.num_classes = np.concatenate(labels), num_classes
        self.starts = np.cumsum([0, *map(len, labels)])[:-1]
        self.correct = np.zeros((passes, len(self.labels)), dtype=np.bool_)
        self.predictions = np.zeros((passes, len(self.labels)), dtype=np.uint16)
        self.confidence, self.nll = np.zeros(len(self.labels)), np.zeros(len(self.labels))

    def add(self, batch: Batch, logits: Tensor) -> tuple[int, float, float]:
        """Add the logits of a batch; return its size, accuracy and mean entropy."""
        if logits.shape[1] < self.num_classes:
            raise TTCError(
                f"the model has {logits.shape[1]} classes and the data has {self.num_classes}; "
                "choose a model that was trained for this data"
            )
        logits = logits.double()
        index = self.starts[batch.domain] + batch.image
        log_probability = logits.log_softmax(1).numpy()
        predicted = log_probability.argmax(1)
        labels, rows = self.labels[index], np.arange(len(index))
        self.predictions[batch.epoch, index] = predicted
        self.correct[batch.epoch, index] = predicted == labels
        self.confidence[index] = np.exp(log_probability[rows, predicted])
        self.nll[index] = -log_probability[rows, labels]
        return len(index), float((predicted == labels).mean()), float(softmax_entropy(logits).mean())


_PredictBatch = Callable[[Batch], Tensor]


def _predict_online(
    protocol: Protocol, domains: Sequence[Images], adapter: Adapter, meter: Meter, *_: object
) -> _PredictBatch:
    def predict_batch(batch: Batch) -> Tensor:
        images = _images(protocol, domains, batch)
        with meter.batch(len(images)):
            return adapter(images).cpu()

    return predict_batch


def _predict_from_cache(
    protocol: Protocol, domains: Sequence[Images], adapter: Adapter, meter: Meter, model: nn.Module, cache: Path | None
) -> _PredictBatch:
    """SOURCE predicts from cached logits; its first batches are also run, for the cost and to check the cache."""
    cached = [source_logits(protocol, domain, model, cache) for domain in domains]
    run = _predict_online(protocol, domains, adapter, meter)

    def predict_batch(batch: Batch) -> Tensor:
        rows = [cached[domain][index] for domain, index in zip(batch.domain, batch.image, strict=True)]
        logits = torch.from_numpy(np.stack(rows))
        if len(meter.milliseconds) < LIVE:
            live = run(batch).float()
            allowed = 1e-2 if protocol.dtype == "float32" else 0.5
            if not torch.allclose(live, logits, rtol=allowed, atol=allowed):
                raise TTCError(f"the source predictions cached in {cache} are not this model's; delete that directory")
        return logits

    return predict_batch


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
    return as_tensor(pixels).to(protocol.device, stored_type(protocol.dtype))


def _warm_up(adapter: Adapter, like: Tensor) -> None:
    """Adapt to two images of noise and reset: what happens once is neither timed nor counted."""
    noise = torch.rand((2, *like.shape[1:]), generator=torch.Generator().manual_seed(0))
    adapter(noise.to(like))
    adapter.reset()


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the global generator for the block, and restore it afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _images_shown(stream: Sequence[Batch], sizes: Sequence[int], *, all_of_them: bool) -> NDArray[np.bool_]:
    """Return which images a stream shows, (N,): each once per pass, the same in every pass."""
    starts, total = np.cumsum([0, *sizes])[:-1], sum(sizes)
    first: NDArray[np.int64] | None = None
    for epoch in range(1 + max(batch.epoch for batch in stream)):
        shown = [starts[batch.domain] + batch.image for batch in stream if batch.epoch == epoch]
        counts = np.bincount(np.concatenate(shown or [np.zeros(0, np.int64)]), minlength=total)
        first = counts if first is None else first
        missing = (counts == 0).any() if all_of_them else not np.array_equal(counts, first)
        if len(counts) != total or (counts > 1).any() or missing:
            raise TTCError(f"a scenario must show every image once per pass; pass {epoch} of this one does not")
    assert first is not None
    return first > 0
