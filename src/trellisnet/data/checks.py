"""Checks that several kinds of data share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from trellisnet.checksums import file_hash
from trellisnet.core.checks import one_of

T = TypeVar("T")


def pick(name: str, value: str, choices: Mapping[str, T]) -> T:
    """Return the choice of this name.

    Raises:
        ValueError: there is none; the message lists all names.
    """
    return choices[one_of(name, value, choices)]


def check_file(path: Path) -> None:
    """Check that a file exists and has content.

    Raises:
        FileNotFoundError: it is not a file.
        ValueError: it is empty.
    """
    if not path.is_file():
        raise FileNotFoundError(f"path must be a file, got {str(path)!r}")
    if path.stat().st_size == 0:
        raise ValueError(f"{path}: is empty")


def check_content(path: Path, expected: str) -> None:
    """Check that the file of a benchmark is the standard one.

    Raises:
        ValueError: it is empty, or its SHA-256 is not `expected`.
    """
    if path.stat().st_size == 0:
        raise ValueError(f"{path}: is empty")
    if (found := file_hash(path)) != expected:
        raise ValueError(
            f"{path}: not the file of that name that the literature uses: its SHA-256 must be {expected}, got {found}"
        )
