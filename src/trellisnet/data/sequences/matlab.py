"""Parse cell arrays of matrices of small integers in MATLAB's level 5 files.

A file has a header of 128 bytes, then elements: a type and a size of four bytes each, the content, and padding to eight
bytes. An element of at most four bytes is shorter: its type and size have two bytes each. A variable is a compressed
element that contains a matrix: the elements flags, shape, name and content. The content of a cell array is a matrix
per cell. MATLAB stores numbers in the smallest type that holds them all.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HEADER = 128
UNSIGNED_BYTES, MATRIX, COMPRESSED = 2, 14, 15  # types of elements
CELLS, NUMBERS = 1, 6  # classes of matrices


def parse_cells(content: bytes, path: Path) -> dict[str, list[NDArray[np.uint8]]]:
    """Return the variables of a file by name, each a list of matrices.

    Args:
        content: the content of the file.
        path: the file, for errors.

    Raises:
        ValueError: the file has another form, or is damaged.
    """
    if content[:10] != b"MATLAB 5.0" or content[HEADER - 4 : HEADER] != b"\x00\x01IM":
        raise ValueError(f"{path}: must begin with the header of a MATLAB 5.0 file, got {content[:10]!r}")
    try:
        return dict(_variable(*element) for element in _split(content[HEADER:]))
    except (ValueError, struct.error, zlib.error) as error:
        raise ValueError(f"{path}: must have cell arrays of matrices of bytes: {error}") from error


def _variable(kind: int, content: bytes) -> tuple[str, list[NDArray[np.uint8]]]:
    _check("type", kind, COMPRESSED)
    ((_, matrix),) = _split(zlib.decompress(content))
    (_, flags), (_, shape), (_, name), *cells = _split(matrix)
    _check("class", flags[0], CELLS)
    _check("number of cells", len(cells), int(np.prod(np.frombuffer(shape, "<i4"))))
    return name.decode("ascii"), [_matrix(*cell) for cell in cells]


def _matrix(kind: int, content: bytes) -> NDArray[np.uint8]:
    _check("type", kind, MATRIX)
    (_, flags), (_, shape), _, (stored, values) = _split(content)
    _check("class", flags[0], NUMBERS)
    _check("type", stored, UNSIGNED_BYTES)
    rows, columns = struct.unpack("<2i", shape)
    return np.frombuffer(values, np.uint8).reshape(rows, columns, order="F")


def _split(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the type and the content of each element."""
    place = 0
    while place < len(content):
        kind, size = struct.unpack_from("<2I", content, place)
        start = place + 8
        if kind >> 16:
            kind, size, start = kind & 0xFFFF, kind >> 16, place + 4
        if start + size > len(content):
            raise ValueError(f"an element of {size:,} bytes has only {len(content) - start:,}")
        yield kind, content[start : start + size]
        place = start + size
        if kind != COMPRESSED:
            place += -place % 8


def _check(name: str, got: int, expected: int) -> None:
    if got != expected:
        raise ValueError(f"{name} must be {expected}, got {got}")
