"""Checks of arguments that several kinds of data share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def pick(name: str, value: str, choices: Mapping[str, T]) -> T:
    """The choice of that name, or an error that names them all."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return choices[value]
