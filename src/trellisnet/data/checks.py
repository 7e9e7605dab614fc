"""Checks that several kinds of data share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from trellisnet.core.checks import one_of

T = TypeVar("T")


def pick(name: str, value: str, choices: Mapping[str, T]) -> T:
    """Return the choice of this name.

    Raises:
        ValueError: there is none; the message lists all names.
    """
    return choices[one_of(name, value, choices)]
