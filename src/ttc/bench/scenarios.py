"""Scenarios: in which order a method meets the images, and when it starts afresh.

A scenario turns the labels of the domains, a batch size and an order seed into a stream of :class:`Batch`. It only says
*which* images come: the engine shows the method the images alone. Short last batches are kept.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ttc.bench.spec import Spec, nearest
from ttc.errors import TTCError

Ints = NDArray[np.int64]
Labels = Sequence[Ints]  # those of each domain, (N,)


class Batch(NamedTuple):
    """Which images come next: domains (B,) and indices in them (B,), whether to reset before, and the pass."""

    domain: Ints
    image: Ints
    reset: bool
    epoch: int = 0


Stream = Iterator[Batch]


def per_domain(labels: Labels, batch_size: int, seed: int) -> Stream:
    """Each domain in shuffled order, from the source model each: the paper's protocol."""
    for domain, there in enumerate(labels):
        yield from _cut(domain, _shuffled(len(there), seed, domain), batch_size)


def continual(labels: Labels, batch_size: int, seed: int) -> Stream:
    """The domains one after another in shuffled order each, without a reset in between."""
    for batch in per_domain(labels, batch_size, seed):
        yield batch._replace(reset=False)


def episodic(labels: Labels, batch_size: int, seed: int) -> Stream:
    """Each domain in shuffled order, with a reset before every batch."""
    for batch in per_domain(labels, batch_size, seed):
        yield batch._replace(reset=True)


def mixed(labels: Labels, batch_size: int, seed: int) -> Stream:
    """The images of all domains shuffled into one another, without a reset."""
    domain = np.concatenate([np.full(len(there), place) for place, there in enumerate(labels)])
    index = np.concatenate([np.arange(len(there)) for there in labels])
    order = _shuffled(len(domain), seed, len(labels))
    for part in _parts(order, batch_size):
        yield Batch(domain[part], index[part], reset=False)


def label_shift(labels: Labels, batch_size: int, seed: int, *, alpha: float = 0.1) -> Stream:
    """Each domain from the source model, its classes in uneven portions: Dirichlet with concentration ``alpha``.

    Every class is cut into slots by shares drawn from Dirichlet(α, …, α), one slot a batch, and the slots come one
    after another, shuffled inside. A small α puts most of a class into few slots; a large one spreads it evenly.
    """
    if alpha <= 0:
        raise TTCError(f"the alpha of label-shift must be positive, got {alpha}")
    for domain, there in enumerate(labels):
        yield from _cut(domain, _uneven(there, batch_size, np.random.default_rng([seed, domain]), alpha), batch_size)


def repeated(labels: Labels, batch_size: int, seed: int, *, epochs: int = 3) -> Stream:
    """Each domain several times over, in a new order each pass, from the source model at the first pass only."""
    if epochs < 1:
        raise TTCError(f"the epochs of repeated must be at least 1, got {epochs}")
    for domain, there in enumerate(labels):
        for epoch in range(epochs):
            for batch in _cut(domain, _shuffled(len(there), seed, domain, epoch), batch_size):
                yield batch._replace(epoch=epoch, reset=batch.reset and epoch == 0)


@dataclass(frozen=True)
class Scenario:
    """A line of the table; ``sequence``: one cell goes through all corruptions, else each corruption is a cell."""

    stream: Callable[..., Stream]
    sequence: bool = False
    gradual: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """The options with their defaults."""
        parameters = inspect.signature(self.stream).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    def severities(self, peak: int) -> tuple[int, ...]:
        """The severities each corruption is met at: ``peak``, or gradually up to it and down again."""
        return (*range(1, peak), *range(peak, 0, -1)) if self.gradual else (peak,)


SCENARIOS: dict[str, Scenario] = {
    "per-domain": Scenario(per_domain),
    "continual": Scenario(continual, sequence=True),
    "episodic": Scenario(episodic),
    "gradual": Scenario(continual, sequence=True, gradual=True),
    "mixed": Scenario(mixed, sequence=True),
    "label-shift": Scenario(label_shift),
    "repeated": Scenario(repeated),
}


def complete(spec: Spec) -> Spec:
    """The spec of a scenario with its defaults filled in, refused where the name or an option does not exist.

    >>> str(complete(Spec.read("label-shift")))
    'label-shift(alpha=0.1)'
    """
    if spec.name not in SCENARIOS:
        near = nearest(spec.name, SCENARIOS)
        raise TTCError(f"there is no scenario '{spec.name}'{near}; the scenarios: {', '.join(SCENARIOS)}")
    defaults = SCENARIOS[spec.name].options
    for option, value in spec.options:
        if option not in defaults:
            near, known = nearest(option, defaults), ", ".join(defaults) or "it has none"
            raise TTCError(f"the scenario '{spec.name}' has no option '{option}'{near}; its options: {known}")
        if isinstance(value, bool) or not isinstance(value, int if isinstance(defaults[option], int) else int | float):
            wanted = "a whole number" if isinstance(defaults[option], int) else "a number"
            raise TTCError(f"the option {option} of the scenario '{spec.name}' must be {wanted}, got {value!r}")
    found = Spec.of(spec.name, {**defaults, **dict(spec.options)})
    next(stream(found, [np.zeros(1, np.int64)], 1, 0))  # a value out of range is refused here, before anything runs
    return found


def stream(scenario: Spec, labels: Labels, batch_size: int, seed: int) -> Stream:
    """The stream of a complete scenario spec over the domains with these labels."""
    return SCENARIOS[scenario.name].stream(labels, batch_size, seed, **dict(scenario.options))


def _shuffled(count: int, *seed: int) -> Ints:
    return np.random.default_rng(seed).permutation(count)


def _parts(order: Ints, batch_size: int) -> Iterator[Ints]:
    return (order[start : start + batch_size] for start in range(0, len(order), batch_size))


def _cut(domain: int, order: Ints, batch_size: int) -> Stream:
    for number, part in enumerate(_parts(order, batch_size)):
        yield Batch(np.full(len(part), domain), part, reset=number == 0)


def _uneven(labels: Ints, batch_size: int, random: np.random.Generator, alpha: float) -> Ints:
    slots: list[list[Ints]] = [[] for _ in range(-(-len(labels) // batch_size))]
    for label in np.unique(labels):
        members = random.permutation(np.flatnonzero(labels == label))
        shares = random.dirichlet(np.full(len(slots), alpha))
        ends = np.round(np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
        for slot, part in zip(slots, np.split(members, ends), strict=True):
            slot.append(part)
    return np.concatenate([random.permutation(np.concatenate(slot)) for slot in slots])
