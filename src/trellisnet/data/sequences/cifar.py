"""Read the two formats of CIFAR-10: binary records and pickles."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellisnet.data.sequences.binary import check_labels, read_bytes

CLASSES = 10
PIXELS = 3 * 32 * 32
RECORD = 1 + PIXELS
Images = tuple[NDArray[np.uint8], NDArray[np.int64]]  # (N, 3072), the planes red, green and blue, and labels (N,)


def read_binary(path: Path) -> Images:
    """Read a `.bin` file.

    Raises:
        ValueError: the file is damaged.
    """
    content = read_bytes(path)
    if len(content) % RECORD:
        raise ValueError(f"{path}: must have a multiple of {RECORD:,} bytes, one record each, got {len(content):,}")
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, RECORD)
    labels = records[:, 0].astype(np.int64)
    check_labels(path, labels, CLASSES)
    return records[:, 1:], labels


def read_pickle(path: Path) -> Images:
    """Read a file of the Python version.

    A pickle is a program. It is executed with no functions but those that build NumPy arrays of numbers.

    Raises:
        ValueError: the file is damaged, or calls another function.
    """
    try:
        content = _ArrayUnpickler(io.BytesIO(read_bytes(path)), encoding="latin1").load()
    except Exception as error:  # a damaged pickle can raise anything
        raise ValueError(f"{path}: not a batch of CIFAR-10's Python version: {error}") from error
    if not isinstance(content, dict) or not {"data", "labels"} <= content.keys():
        raise ValueError(f"{path}: must hold a dictionary with 'data' and 'labels'")
    images, labels = content["data"], np.asarray(content["labels"])
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape != (len(labels), PIXELS):
        raise ValueError(f"{path}: 'data' must be bytes of shape ({len(labels)}, {PIXELS}), one row per label")
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"{path}: 'labels' must be a list of integers")
    check_labels(path, labels, CLASSES)
    return images, labels.astype(np.int64)


class _ArrayUnpickler(pickle.Unpickler):
    """Loads built-in containers and arrays of numbers only."""

    def find_class(self, module: str, name: str) -> Any:
        # old and new name of the same module: the files were written by NumPy 1
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return _reconstruct
        if (module, name) == ("numpy", "ndarray"):
            return np.ndarray
        if (module, name) == ("numpy", "dtype"):
            return _numeric_dtype
        if (module, name) == ("_codecs", "encode"):
            return _encode
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not allowed")


def _reconstruct(kind: type, shape: tuple[int, ...], code: object) -> NDArray[Any]:
    if kind is not np.ndarray:
        raise pickle.UnpicklingError("only plain arrays are allowed")
    return np.ndarray(shape, dtype=np.int8)  # `__setstate__` follows and replaces shape and dtype


def _numeric_dtype(code: str, *_: object) -> np.dtype[Any]:
    dtype = np.dtype(code)
    if dtype.kind not in "biuf":
        raise pickle.UnpicklingError(f"only arrays of numbers are allowed, got {code!r}")
    return dtype


def _encode(text: str, encoding: str) -> bytes:
    """Decode bytes as protocol 2 writes them."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"only latin1 is allowed, got {encoding!r}")
    return text.encode(encoding)
