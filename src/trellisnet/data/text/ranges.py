"""Text files and ranges of them, read in blocks."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from trellisnet.checksums import file_hash

BLOCK = 2**20  # bytes
FRACTIONS = {"train": 0.9, "valid": 0.05, "test": 0.05}


@dataclass(frozen=True)
class FileRange:
    """A text file, or a range of its bytes."""

    path: Path
    start: int = 0
    stop: int | None = None

    @property
    def size(self) -> int:
        """Number of bytes."""
        return (self.path.stat().st_size if self.stop is None else self.stop) - self.start

    @property
    def hash(self) -> str:
        """SHA-256 of the content."""
        return file_hash(self.path, self.start, self.stop)


def blocks(file_range: FileRange, separators: bytes) -> Iterator[bytes]:
    """Yield the text in blocks. A block ends after one of `separators`, if there are any, so that no token is split.

    If the last line has no end, a line feed is added, so that texts do not run into each other.
    """
    rest: list[bytes] = []
    left, block = file_range.size, b"\n"
    with file_range.path.open("rb") as file:
        file.seek(file_range.start)
        while left > 0 and (block := file.read(min(left, BLOCK))):
            left -= len(block)
            cut = max((block.rfind(separator) for separator in separators), default=len(block) - 1) + 1
            if cut:
                yield b"".join((*rest, block[:cut]))
                rest = []
            rest.append(block[cut:])
    if not block.endswith(b"\n"):
        yield b"".join((*rest, b"\n"))


def split_file(path: Path) -> dict[str, list[FileRange]]:
    """Cut a file into 90 % for training, 5 % for validation and 5 % for testing, at ends of lines if possible."""
    size, start, splits = path.stat().st_size, 0, {}
    for name, end in zip(FRACTIONS, (0.9, 0.95, 1.0), strict=True):
        stop = size if name == "test" else _cut_after(path, int(size * end))
        splits[name] = [FileRange(path, start, stop)]
        start = stop
    return splits


def raise_not_utf8(file_ranges: Iterable[FileRange]) -> NoReturn:
    """Find the first byte that is not UTF-8 and raise an error with its position.

    Raises:
        ValueError: always; one of the ranges must have such a byte.
    """
    for file_range in file_ranges:
        decoder = codecs.getincrementaldecoder("utf-8")()
        offset, lines, left = file_range.start, 1, file_range.size
        with file_range.path.open("rb") as file:
            file.seek(file_range.start)
            while True:
                block = file.read(min(left, BLOCK))
                left -= len(block)
                pending = len(decoder.getstate()[0])
                try:
                    decoder.decode(block, final=not block)
                except UnicodeDecodeError as error:
                    lines += block[: max(0, error.start - pending)].count(b"\n")
                    where = f"byte {offset - pending + error.start:,} (line {lines:,}"
                    where += ")" if file_range.start == 0 else f" after byte {file_range.start:,})"
                    raise ValueError(
                        f"{file_range.path}: must be UTF-8, but is not at {where}: {error.reason}"
                    ) from None
                if not block:
                    break
                offset += len(block)
                lines += block.count(b"\n")
    raise AssertionError("all of the text is UTF-8")


def check_not_empty(splits: dict[str, Sequence[FileRange]]) -> None:
    """Check that every split has some text.

    Raises:
        ValueError: a split is empty.
    """
    for name, file_ranges in splits.items():
        if not any(file_range.size for file_range in file_ranges):
            files = ", ".join(dict.fromkeys(str(file_range.path) for file_range in file_ranges)) or "no file"
            raise ValueError(f"{files}: the text for {name!r} is empty")


def _cut_after(path: Path, offset: int) -> int:
    with path.open("rb") as file:
        file.seek(offset)
        ahead = file.read(BLOCK)
    for separator in (b"\n", b" "):
        if separator in ahead:
            return offset + ahead.index(separator) + 1
    # without any blank, cut between two characters; in UTF-8 only continuation bytes have the form 0b10......
    return offset + next((i for i, byte in enumerate(ahead) if byte & 0xC0 != 0x80), len(ahead))
