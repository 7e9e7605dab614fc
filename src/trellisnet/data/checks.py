"""Checks of arguments that several kinds of data share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from trellisnet.core.checks import one_of

T = TypeVar("T")


def pick(name: str, value: str, choices: Mapping[str, T]) -> T:
    """The choice of that name, or an error that names them all."""
    return choices[one_of(name, value, choices)]
