"""Fingerprints of data: a hash of every byte that is learned from, by part, so that a change is noticed and named."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

SHOWN = 80  # characters of a changed fact in a message
FREE = ("name", "note", "ahead")  # facts that do not change what is learned


def fingerprint(*values: Any) -> str:
    """Hash values of any depth: arrays with all their bytes, numbers, texts, None, and sequences of these.

    Raises:
        TypeError: a value has another type.

    >>> fingerprint(np.arange(3), "a")[:8] == fingerprint(np.arange(3), "b")[:8]
    False
    """
    digest = hashlib.sha256()
    for value in values:
        _add(digest, value)
    return digest.hexdigest()


def fact_fingerprints(facts: Mapping[str, Any]) -> dict[str, str]:
    """The hash of each fact about a dataset, live or read from JSON: scales, label names, columns, sizes."""
    return {name: fingerprint(json.dumps(value)) for name, value in facts.items() if name not in FREE}


def _add(digest: Any, value: Any) -> None:
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError(f"an array of {value.dtype} has no bytes to hash")
        digest.update(f"array {value.dtype.str} {value.shape} ".encode())
        digest.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8))
    elif isinstance(value, (list, tuple)):
        digest.update(f"sequence {len(value)} ".encode())
        for each in value:
            _add(digest, each)
    elif value is None or isinstance(value, (bool, int, float, str, np.generic)):
        text = repr(value).encode()
        digest.update(f"{type(value).__name__} {len(text)} ".encode() + text)
    else:
        raise TypeError(f"a {type(value).__name__} has no bytes to hash")


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The parts that differ, in the order of the later fingerprints; parts that only one of them has included.

    >>> changes({"train": "1", "labels": "2"}, {"train": "1", "labels": "3", "test": "4"})
    ['labels', 'test']
    """
    every: Sequence[str] = list(dict.fromkeys((*now, *before)))
    return [name for name in every if before.get(name) != now.get(name)]


def described_change(name: str, before: Any, now: Any) -> str:
    """A part of the data that has changed, with its values if they are known.

    >>> described_change("labels", ["a", "b"], ("a", "c")), described_change("train", None, None)
    ("labels was ['a', 'b'], now ['a', 'c']", 'train has changed')
    """
    earlier, later = (json.loads(json.dumps(value)) for value in (before, now))
    if earlier == later:
        return f"{name} has changed"
    return f"{name} was {_shortened(earlier)}, now {_shortened(later)}"


def _shortened(value: Any) -> str:
    text = str(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
