"""Argument checks that name the argument, the value and what was expected."""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Iterable, Sequence
from itertools import pairwise
from numbers import Real
from typing import Any

LARGEST = 2**31 - 1  # of a size or a number of anything: more would fill any memory
LARGEST_SEED = 2**63 - 1
LARGEST_WEIGHT = 1e30  # of a part of a loss
MOST_LAYERS = 2**16  # some hundred times as many as any published net
OF_RNNS = {  # options of nn.LSTM that mean something else here, and what to use
    "bidirectional": "a net that streams is causal; models of whole sequences have bidirectional=True "
    "(TrellisClassifier, TrellisRegressor, SequenceLabeller, ...)",
    "dropout": "hidden_dropout drops channels inside the net, weight_dropout entries of its kernel, and input_dropout "
    "and output_dropout of a model channels before and after it",
    "proj_size": "output_size=n makes the last n channels the output, without further weights",
}


def positive_int(name: str, value: object, minimum: int = 1, maximum: int = LARGEST) -> int:
    """Return `value` if it is an integer from `minimum` to `maximum`."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer >= {minimum}, got {value!r}")
    if number < minimum:
        raise ValueError(f"{name} must be an integer >= {minimum}, got {value}")
    if number > maximum:
        got = f"{number:,}" if number < 10**30 else f"about 2^{number.bit_length() - 1}"
        raise ValueError(f"{name} must be an integer from {minimum} to {maximum:,}, got {got}")
    return number


def layer_count(name: str, value: object, minimum: int = 1) -> int:
    """Return `value` if it is a number of layers of at least `minimum`."""
    return positive_int(name, value, minimum, MOST_LAYERS)


def seed_number(name: str, value: object) -> int:
    """Return `value` if it is a seed of random numbers."""
    return positive_int(name, value, 0, LARGEST_SEED)


def positive_ints(name: str, values: object) -> tuple[int, ...]:
    """Return an integer or a sequence of integers (a list, an array, a tensor), each at least 1, as a tuple."""
    values = values.tolist() if hasattr(values, "tolist") else values
    if hasattr(values, "__index__"):
        return (positive_int(name, values),)
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise TypeError(f"{name} must be an integer or a sequence of integers, got {values!r}")
    if not values:
        raise ValueError(f"{name} must not be empty")
    return tuple(positive_int(f"{name}[{i}]", value) for i, value in enumerate(values))


def probability(name: str, value: object) -> float:
    """Return `value` if it is a dropout probability in [0, 1)."""
    number = _number(value)
    if number is None:
        raise TypeError(f"{name} must be a number in [0, 1), got {value!r}")
    if not 0 <= number < 1:
        raise ValueError(f"{name} must be in [0, 1), got {value if math.isfinite(number) else number}")
    return number


def quantile_levels(name: str, values: object) -> tuple[float, ...]:
    """Return ascending numbers between 0 and 1, in any sequence, as a tuple."""
    values = values.tolist() if hasattr(values, "tolist") else values
    numbers = [_number(value) for value in values] if isinstance(values, (list, tuple)) else []
    levels = tuple(number for number in numbers if number is not None)
    if not numbers or len(levels) < len(numbers):
        raise TypeError(f"{name} must be a list of numbers between 0 and 1, such as [0.1, 0.5, 0.9], got {values!r}")
    if not all(0 < level < 1 for level in levels) or any(b <= a for a, b in pairwise(levels)):
        raise ValueError(f"{name} must be ascending numbers between 0 and 1, got {list(levels)}")
    return levels


def boolean(name: str, value: object) -> bool:
    """Return `value` if it is True or False; a text such as "false" would count as true."""
    if type(value).__name__ not in ("bool", "bool_"):  # numpy's own is called bool or bool_
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def one_of(name: str, value: object, choices: Iterable[str]) -> str:
    """Return `value` if it is one of `choices`."""
    choices = list(choices)
    if value not in choices:
        near = suggestion(str(value), choices)
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}{near}")
    return str(value)


def suggestion(name: str, known: Iterable[str]) -> str:
    """`, did you mean ...?` if something known is near.

    >>> suggestion("word-ptp", ["word-ptb", "demo"])
    ", did you mean 'word-ptb'?"
    """
    near = difflib.get_close_matches(name, list(known), n=1)
    return f", did you mean {near[0]!r}?" if near else ""


def unknown_option(option: str, known: Iterable[str]) -> str:
    """What to use instead of an option that does not exist, or a similar name; may be empty."""
    return f": {OF_RNNS[option]}" if option in OF_RNNS else suggestion(option, known)


def positive(name: str, value: object) -> float:
    """Return `value` if it is a number above 0."""
    number = non_negative(name, value)
    if number == 0:
        raise ValueError(f"{name} must be a number > 0, got {value}")
    return number


def non_negative(name: str, value: object) -> float:
    """Return `value` if it is a number of at least 0."""
    number = _number(value)
    if number is None:
        raise TypeError(f"{name} must be a number >= 0, got {value!r}")
    if not 0 <= number < math.inf:
        raise ValueError(f"{name} must be a number >= 0, got {value if math.isfinite(number) else number}")
    return number


def loss_weight(name: str, value: object) -> float:
    """Return `value` if it is a number of at least 0 with which a loss in single precision stays finite."""
    number = non_negative(name, value)
    if number > LARGEST_WEIGHT:
        raise ValueError(f"{name} must be a number from 0 to {LARGEST_WEIGHT:g}, got {number:g}")
    return number


def _number(value: Any) -> float | None:
    """A number of Python, NumPy or torch, also as an array or tensor without dimensions; None if it is none."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    if not isinstance(value, Real) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:  # of an integer above the largest float, which may also have too many digits to be printed
        return math.inf if operator.gt(value, 0) else -math.inf
