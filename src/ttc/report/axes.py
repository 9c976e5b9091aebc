"""Axes: from values to places, with ticks at round numbers."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """A range of values with its ticks; ``categories`` are rows named by their ticks, the first at the top."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    label: str = ""
    log: bool = False
    categories: bool = False

    def share(self, value: float) -> float:
        """How far ``value`` lies along the axis, from 0 to 1.

        >>> Axis(1, 100, (), log=True).share(10)
        0.5
        """
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        return ((math.log(value) if self.log else value) - low) / (high - low)


def linear(
    values: Iterable[float], label: str = "", *, low: float | None = None, high: float | None = None, count: int = 6
) -> Axis:
    """An axis around ``values``, widened to round ticks unless an end is given.

    >>> [text for _, text in linear([12.0, 47.0]).ticks]
    ['10', '20', '30', '40', '50']
    """
    known = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    start, end = min(known) if low is None else low, max(known) if high is None else high
    if end - start < 1e-9:
        start, end = start - 0.5, end + 0.5
    step = _round_step((end - start) / (count - 1))
    start = math.floor(start / step + 1e-9) * step if low is None else start
    end = math.ceil(end / step - 1e-9) * step if high is None else end
    places = max(0, -math.floor(math.log10(step) + 1e-9))
    first, last = math.ceil(start / step - 1e-9), math.floor(end / step + 1e-9)
    ticks = tuple((index * step, _number(index * step, places)) for index in range(first, last + 1))
    return Axis(start, end, ticks, label)


def logarithmic(values: Sequence[float], label: str = "", *, ticks: Sequence[float] = ()) -> Axis:
    """A logarithmic axis over positive ``values``, ticked at the powers of ten or where told.

    >>> [text for _, text in logarithmic([1, 200], ticks=[1, 10, 100]).ticks]
    ['1', '10', '100']
    """
    low, high = min(values), max(values)
    low, high = (low / 2, high * 2) if low == high else (low, high)
    powers = [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    chosen = [tick for tick in ticks or powers if low * 0.999 <= tick <= high * 1.001]
    return Axis(low, high, tuple((tick, f"{tick:g}") for tick in chosen), label, log=True)


def categories(names: Sequence[str]) -> Axis:
    """Rows by name, at 0, 1, 2 … from the top.

    >>> categories(["fog", "snow"]).share(0)
    0.25
    """
    return Axis(-0.5, len(names) - 0.5, tuple((float(row), name) for row, name in enumerate(names)), categories=True)


def _round_step(step: float) -> float:
    """The next of 1, 2, 2.5, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= step * (1 - 1e-9))


def _number(value: float, places: int) -> str:
    text = f"{value:.{places + 1}f}"
    text = text[:-1] if text.endswith("0") else text
    return text.removesuffix(".").replace("-", "−")
