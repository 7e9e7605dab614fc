"""Parse the IDX format of MNIST: two zero bytes, the type, the number of dimensions, their sizes, the values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

UNSIGNED_BYTE = 8


def parse_idx(content: bytes, dimensions: int, path: Path) -> NDArray[np.uint8]:
    """Return the array in the content of an IDX file.

    Args:
        content: the content of the file.
        dimensions: expected number of dimensions.
        path: the file, for errors.

    Raises:
        ValueError: the content is not such an array.
    """
    magic = bytes((0, 0, UNSIGNED_BYTE, dimensions))
    if content[:4] != magic:
        raise ValueError(
            f"{path}: must begin with the magic number 0x{magic.hex()} (IDX, bytes in {dimensions} dimensions), "
            f"got 0x{content[:4].hex()}"
        )
    header = 4 + 4 * dimensions
    if len(content) < header:
        raise ValueError(f"{path}: must have a header of {header} bytes, got {len(content)}")
    shape = tuple(int(size) for size in np.frombuffer(content, dtype=">u4", count=dimensions, offset=4))
    expected = header + int(np.prod(shape, dtype=np.int64))
    if len(content) != expected:
        raise ValueError(f"{path}: must have {expected:,} bytes for shape {shape}, got {len(content):,}")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)
