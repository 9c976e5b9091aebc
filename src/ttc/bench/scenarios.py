"""Scenarios: in which order a method sees the images, and when it is reset.

A scenario maps the labels of the domains, a batch size and an order seed to a stream of :class:`Batch`. It only says
*which* images come: the method sees the images alone. The last batch may be short.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ttc.bench.spec import Spec
from ttc.errors import TTCError, unknown

Ints = NDArray[np.int64]
DomainLabels = Sequence[Ints]  # those of each domain, (N,)
CLEAN = "clean"  # stands among the corruptions for the images as they are, severity 0


class Domain(NamedTuple):
    """A corruption at a severity, or clean images at severity 0."""

    corruption: str
    severity: int


class Batch(NamedTuple):
    """Which images come next.

    Args:
        domain: The index of each image's domain, (B,).
        image: The index of each image in its domain, (B,).
        reset: Whether the adapter is reset before this batch.
        epoch: The pass over the data, from 0.
    """

    domain: Ints
    image: Ints
    reset: bool
    epoch: int = 0


Stream = Iterator[Batch]


def per_domain(labels: DomainLabels, batch_size: int, seed: int) -> Stream:
    """Each domain in shuffled order, with a reset before each: the paper's protocol."""
    for domain, there in enumerate(labels):
        yield from _cut(domain, _shuffled(len(there), seed, domain), batch_size)


def continual(labels: DomainLabels, batch_size: int, seed: int) -> Stream:
    """One domain after another, each in shuffled order, without a reset in between."""
    for batch in per_domain(labels, batch_size, seed):
        yield batch._replace(reset=False)


def episodic(labels: DomainLabels, batch_size: int, seed: int) -> Stream:
    """Each domain in shuffled order, with a reset before every batch."""
    for batch in per_domain(labels, batch_size, seed):
        yield batch._replace(reset=True)


def mixed(labels: DomainLabels, batch_size: int, seed: int) -> Stream:
    """The images of all domains in one shuffled order, without a reset."""
    domain = np.concatenate([np.full(len(there), index) for index, there in enumerate(labels)])
    index = np.concatenate([np.arange(len(there)) for there in labels])
    order = _shuffled(len(domain), seed, len(labels))
    for part in _parts(order, batch_size):
        yield Batch(domain[part], index[part], reset=False)


def label_shift(labels: DomainLabels, batch_size: int, seed: int, *, alpha: float = 0.1) -> Stream:
    """Each domain with a reset before, its classes unevenly spread over time: Dirichlet with concentration ``alpha``.

    Every class is split among the slots by fractions drawn from Dirichlet(α, …, α), one slot per batch; the slots come
    one after another, shuffled inside. A small α puts most of a class into few slots; a large one spreads it evenly.
    """
    if alpha <= 0:
        raise TTCError(f"the alpha of label-shift must be positive, got {alpha}")
    for domain, there in enumerate(labels):
        yield from _cut(domain, _uneven(there, batch_size, np.random.default_rng([seed, domain]), alpha), batch_size)


def long_tailed(labels: DomainLabels, batch_size: int, seed: int, *, ratio: float = 10.0) -> Stream:
    """Each domain with a reset before and a long tail of rare classes; images are left out, the same for every seed.

    Of the K classes, class k keeps its first n·ratio^(-k/(K-1)) images, n being the size of the smallest class, and at
    least one: ``ratio`` is how many times more frequent the first class is than the last. The seed shuffles what is
    left.
    """
    if ratio < 1:
        raise TTCError(f"the ratio of long-tailed must be at least 1, got {ratio}")
    for domain, there in enumerate(labels):
        chosen = _tail(there, ratio)
        yield from _cut(domain, chosen[_shuffled(len(chosen), seed, domain)], batch_size)


def recurring(labels: DomainLabels, batch_size: int, seed: int, *, rounds: int = 20) -> Stream:
    """All domains one after another, round after round without a reset; each round is a pass in a new order."""
    if rounds < 1:
        raise TTCError(f"the rounds of recurring must be at least 1, got {rounds}")
    for epoch in range(rounds):
        for domain, there in enumerate(labels):
            for batch in _cut(domain, _shuffled(len(there), seed, domain, epoch), batch_size):
                yield batch._replace(epoch=epoch, reset=False)


def single_image(labels: DomainLabels, batch_size: int, seed: int) -> Stream:
    """Each domain in shuffled order, with a reset before each, one image at a time whatever the batch size."""
    return per_domain(labels, 1, seed)


def repeated(labels: DomainLabels, batch_size: int, seed: int, *, epochs: int = 3) -> Stream:
    """Each domain several times, in a new order in each pass, with a reset before the first pass only."""
    if epochs < 1:
        raise TTCError(f"the epochs of repeated must be at least 1, got {epochs}")
    for domain, there in enumerate(labels):
        for epoch in range(epochs):
            for batch in _cut(domain, _shuffled(len(there), seed, domain, epoch), batch_size):
                yield batch._replace(epoch=epoch, reset=batch.reset and epoch == 0)


@dataclass(frozen=True)
class Scenario:
    """A line of the table of scenarios.

    Args:
        stream: Maps labels, batch size, seed and options (keyword-only) to batches.
        sequence: Whether one cell goes through all corruptions; else there is one cell per corruption.
        severities: Maps the severity that was asked for to those of each corruption in order, 0 for clean images.
        subsamples: Whether it leaves images out; the others show every image once per pass, which is checked.
        batch_size: The one batch size it has; None for the one that is asked for.
    """

    stream: Callable[..., Stream]
    sequence: bool = False
    severities: Callable[[int], tuple[int, ...]] = lambda peak: (peak,)
    subsamples: bool = False
    batch_size: int | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The options with their defaults."""
        parameters = inspect.signature(self.stream).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


SCENARIOS: dict[str, Scenario] = {
    "per-domain": Scenario(per_domain),
    "continual": Scenario(continual, sequence=True),
    "episodic": Scenario(episodic),
    "gradual": Scenario(continual, sequence=True, severities=lambda peak: (*range(1, peak), *range(peak, 0, -1))),
    "clean-corrupt-clean": Scenario(continual, severities=lambda peak: (0, peak, 0)),
    "mixed": Scenario(mixed, sequence=True),
    "label-shift": Scenario(label_shift),
    "long-tailed": Scenario(long_tailed, subsamples=True),
    "recurring": Scenario(recurring, sequence=True),
    "single-image": Scenario(single_image, batch_size=1),
    "repeated": Scenario(repeated),
}
"""The scenarios by name."""


def with_defaults(spec: Spec) -> Spec:
    """Add the defaults of all options to the spec of a scenario.

    Raises:
        TTCError: If the name or an option does not exist, or a value is invalid.

    Example:
        >>> str(with_defaults(Spec.read("label-shift")))
        'label-shift(alpha=0.1)'
    """
    if spec.name not in SCENARIOS:
        raise unknown("scenario", spec.name, SCENARIOS)
    defaults = SCENARIOS[spec.name].options
    for option, value in spec.options:
        if option not in defaults:
            raise unknown(f"option of the scenario '{spec.name}'", option, defaults)
        if isinstance(value, bool) or not isinstance(value, int if isinstance(defaults[option], int) else int | float):
            wanted = "a whole number" if isinstance(defaults[option], int) else "a number"
            raise TTCError(f"the option {option} of the scenario '{spec.name}' must be {wanted}, got {value!r}")
    found = Spec.of(spec.name, {**defaults, **dict(spec.options)})
    next(stream(found, [np.zeros(1, np.int64)], 1, 0))  # a value out of range is rejected here, before anything runs
    return found


def stream(scenario: Spec, labels: DomainLabels, batch_size: int, seed: int) -> Stream:
    """Return the batches of a scenario, given with all its options, over the domains with these labels."""
    return SCENARIOS[scenario.name].stream(labels, batch_size, seed, **dict(scenario.options))


def domains_of(scenario: Spec, corruptions: Sequence[str], severity: int) -> list[Domain]:
    """Return the domains of a cell in the order of its stream.

    Example:
        >>> domains_of(Spec("per-domain"), ["fog", "clean"], 5)
        [Domain(corruption='fog', severity=5), Domain(corruption='clean', severity=0)]
    """
    levels = SCENARIOS[scenario.name].severities(severity)
    chosen = [(name, level) for name in corruptions for level in ((0,) if name == CLEAN else levels)]
    return [Domain(name if level else CLEAN, level) for name, level in chosen]


def _shuffled(count: int, *seed: int) -> Ints:
    return np.random.default_rng(seed).permutation(count)


def _parts(order: Ints, batch_size: int) -> Iterator[Ints]:
    return (order[start : start + batch_size] for start in range(0, len(order), batch_size))


def _cut(domain: int, order: Ints, batch_size: int) -> Stream:
    for number, part in enumerate(_parts(order, batch_size)):
        yield Batch(np.full(len(part), domain), part, reset=number == 0)


def _tail(labels: Ints, ratio: float) -> Ints:
    classes, counts = np.unique(labels, return_counts=True)
    kept = counts.min() * ratio ** (-np.arange(len(classes)) / max(1, len(classes) - 1))
    parts = [
        np.flatnonzero(labels == label)[: max(1, round(float(many)))] for label, many in zip(classes, kept, strict=True)
    ]
    return np.sort(np.concatenate(parts))


def _uneven(labels: Ints, batch_size: int, random: np.random.Generator, alpha: float) -> Ints:
    slots: list[list[Ints]] = [[] for _ in range(-(-len(labels) // batch_size))]
    for label in np.unique(labels):
        members = random.permutation(np.flatnonzero(labels == label))
        fractions = random.dirichlet(np.full(len(slots), alpha))
        ends = np.round(np.cumsum(fractions)[:-1] * len(members)).astype(np.int64)
        for slot, part in zip(slots, np.split(members, ends), strict=True):
            slot.append(part)
    return np.concatenate([random.permutation(np.concatenate(slot)) for slot in slots])
