"""Axes of charts: a range with round ticks, linear or logarithmic, for whatever numbers a run may have left."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

LARGEST = 1e100  # beyond it differences and powers overflow; nothing that anyone wants to see is there
FLAT = 1e-6  # a smaller range, relative to the values, is one of rounding
MARGIN = 0.04  # of the range, so that no line lies on the frame
UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


@dataclass(frozen=True)
class Axis:
    """What an axis shows.

    Args:
        low: value at its beginning.
        high: value at its end.
        log: whether it is logarithmic.
        ticks: values within the range, and their labels.
    """

    low: float
    high: float
    log: bool
    ticks: tuple[tuple[float, str], ...]

    def fraction(self, value: float) -> float:
        """Where a value is: 0 at the axis' beginning, 1 at its end."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def drawable(value: float) -> bool:
    """Whether a number has a place on an axis: it is neither infinite, nor no number, nor absurdly large."""
    return abs(value) <= LARGEST


def make_axis(values: Iterable[float], log: bool = False, steps: bool = False) -> Axis:
    """An axis for some values.

    Args:
        values: those that are not drawable are passed over.
        log: make it logarithmic, if all values are positive.
        steps: they are counted: ticks at whole numbers only, and no margin.

    Example:
        >>> [label for _, label in make_axis([0, 43000], steps=True).ticks]
        ['0', '10k', '20k', '30k', '40k']
        >>> [label for _, label in make_axis([0.0004, 0.2], log=True).ticks]
        ['0.001', '0.01', '0.1']
    """
    shown = [value for value in values if drawable(value)]
    low, high = (min(shown), max(shown)) if shown else (0.0, 1.0)
    log = log and low > 1 / LARGEST
    low, high = _widened(low, high)
    if log and not steps:
        factor = (high / low) ** MARGIN
        low, high = low / factor, high * factor
    elif not steps:
        margin = (high - low) * MARGIN
        low, high = low - margin, high + margin
    if log and high / low > 5:
        return Axis(low, high, log, _decades(low, high))
    return Axis(low, high, log, _even(low, high, steps))


def _widened(low: float, high: float) -> tuple[float, float]:
    """The range itself, or one around it if it is too small to be divided."""
    size = max(abs(low), abs(high))
    if high - low > max(FLAT * size, 1 / LARGEST):
        return low, high
    margin = size / 2 if size > 1 / LARGEST else 1.0
    return low - margin, high + margin


def _even(low: float, high: float, whole: bool) -> tuple[tuple[float, str], ...]:
    """Ticks at multiples of 1, 2 or 5 times a power of ten, about five of them."""
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = min((factor * power for factor in (1, 2, 5, 10)), key=lambda size: abs(math.log(size / rough)))
    step = max(step, 1.0) if whole else step
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple((i * step, tick_label(i * step, step)) for i in range(first, last + 1))


def _decades(low: float, high: float) -> tuple[tuple[float, str], ...]:
    """Ticks at powers of ten; between them at 2 and 5 where there are few, or not at all powers where many."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1, 2, 5) if math.log10(high / low) < 2.5 else (1,)
    every = max(1, (last - first) // 6)
    values = [factor * 10.0**power for power in range(first, last + 1, every) for factor in factors]
    return tuple((value, tick_label(value, value)) for value in values if low <= value * (1 + 1e-9) <= high)


def tick_label(value: float, step: float) -> str:
    """A tick's value with as many digits as tell it from its neighbours.

    >>> tick_label(0.30000000000000004, 0.1), tick_label(2e-05, 1e-05), tick_label(1500000, 500000)
    ('0.3', '2e-5', '1500k')
    """
    if value == 0:
        return "0"
    if not 1e-4 < step < 1e12:
        digits = max(0, _power(abs(value)) - _power(step))
        mantissa, exponent = f"{value:.{digits}e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    unit, suffix = next((unit, suffix) for unit, suffix in (*UNITS, (0.0, "")) if step >= unit)
    decimals = max(0, -_power(step))
    return f"{value / (unit or 1.0):.{decimals}f}{suffix}"


def _power(value: float) -> int:
    """The power of ten that a number begins with, rounding errors aside."""
    return math.floor(math.log10(value) + 1e-9)
