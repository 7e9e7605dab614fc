"""Read binary files, plain or compressed; errors name the file."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

GZIP_MAGIC = b"\x1f\x8b"


def read_bytes(path: Path) -> bytes:
    """Return the content of a file. A gzip file is recognised by its first bytes, not by its name.

    Raises:
        ValueError: the file is empty or damaged.
    """
    content = path.read_bytes()
    if not content:
        raise ValueError(f"{path}: is empty")
    if content.startswith(GZIP_MAGIC):
        try:
            return gzip.decompress(content)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{path}: truncated or damaged gzip file: {error}") from error
    return content


def check_labels(path: Path, labels: NDArray[np.integer], classes: int) -> None:
    """Check that every label is below `classes`.

    Raises:
        ValueError: one is not.
    """
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        raise ValueError(f"{path}: labels must be in [0, {classes}), got {labels[wrong[0]]} in record {wrong[0]:,}")
