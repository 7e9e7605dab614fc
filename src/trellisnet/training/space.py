"""Search spaces: which options of a recipe a study varies, and over which values.

A space is a mapping from option to values, in the section `tune` of a recipe or in a YAML file of its own:

    training.learning_rate: {low: 1e-4, high: 1e-2, log: true}   # a range; `step` is possible too
    model.num_layers: {low: 2, high: 8}                          # of integers if the option is one
    model.cell: [lstm, gru]                                      # a choice
    model.dilation: [[1], [1, 2, 4, 8]]
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trellisnet.core.checks import suggestion

RANGE = ("low", "high", "log", "step")


@dataclass(frozen=True)
class Range:
    """Numbers from low to high, on a logarithmic scale or in steps if asked."""

    low: float
    high: float
    log: bool = False
    step: float | None = None

    @property
    def bounds(self) -> list[str]:
        """The texts of the extreme values, as flags have them."""
        return [json.dumps(self.low), json.dumps(self.high)]


@dataclass(frozen=True)
class Choice:
    """Some values, as the texts of flags."""

    texts: tuple[str, ...]

    @property
    def bounds(self) -> list[str]:
        """All texts."""
        return list(self.texts)


Dimension = Range | Choice


def read_space(values: object, where: str) -> dict[str, Dimension]:
    """Read a search space; a ValueError that names what is wrong in it."""
    if not isinstance(values, Mapping) or not values:
        raise ValueError(f"{where}: a search space must be a mapping from options to values, got {values!r}")
    return {str(name): _dimension(f"{where}: {name}", each) for name, each in values.items()}


def _dimension(name: str, values: object) -> Dimension:
    if isinstance(values, list) and len(values) > 1:
        return Choice(tuple(value if isinstance(value, str) else json.dumps(value) for value in values))
    if not isinstance(values, Mapping):
        raise ValueError(f"{name} must be a list of at least two values or a range {{low, high}}, got {values!r}")
    for key in values:
        if key not in RANGE:
            raise ValueError(f"{name} has an unknown key {key!r}{suggestion(str(key), RANGE)}")
    found = {key: values.get(key) for key in ("low", "high")}
    for key, value in (*found.items(), ("step", values.get("step", 1))):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"{name} must have a number {key!r}, got {value!r}")
    low, high, log, step = values["low"], values["high"], values.get("log", False), values.get("step")
    if not low < high:
        raise ValueError(f"{name} must have low < high, got low={low} and high={high}")
    if not isinstance(log, bool) or (log and (step is not None or low <= 0)):
        raise ValueError(f"{name}: log must be true or false, and true needs low > 0 and no step, got {dict(values)}")
    if step is not None and step <= 0:
        raise ValueError(f"{name} must have a step > 0, got {step}")
    return Range(low, high, log, step)


def check_space(space: Mapping[str, Dimension], read: Callable[[dict[str, str]], object], where: str) -> None:
    """Try every bound and choice, one at a time; a ValueError if one of them is not possible.

    Args:
        space: the search space.
        read: makes an experiment from options by flag.
        where: origin of the space, for messages.
    """
    for name, dimension in space.items():
        for text in dimension.bounds:
            try:
                read({name: text})
            except (TypeError, ValueError) as error:
                raise ValueError(f"{where}: {error}") from None
