"""Text files, read in blocks."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from trellisnet.data.files.cache import file_hash

BLOCK = 2**20
FRACTIONS = {"train": 0.9, "valid": 0.05, "test": 0.05}


@dataclass(frozen=True)
class Part:
    """A text file, or a range of its bytes."""

    path: Path
    start: int = 0
    stop: int | None = None

    @property
    def size(self) -> int:
        """Bytes."""
        return (self.path.stat().st_size if self.stop is None else self.stop) - self.start

    @property
    def hash(self) -> str:
        """SHA-256 of the content."""
        return file_hash(self.path, self.start, self.stop)


def blocks(part: Part, separators: bytes) -> Iterator[bytes]:
    """The text in blocks that end after one of `separators`, so that no token is torn; anywhere if there are none.

    A part that does not end its last line gets an end of line: texts do not run into each other.
    """
    rest: list[bytes] = []
    left, block = part.size, b"\n"
    with part.path.open("rb") as file:
        file.seek(part.start)
        while left > 0 and (block := file.read(min(left, BLOCK))):
            left -= len(block)
            cut = max((block.rfind(separator) for separator in separators), default=len(block) - 1) + 1
            if cut:
                yield b"".join((*rest, block[:cut]))
                rest = []
            rest.append(block[cut:])
    if not block.endswith(b"\n"):
        yield b"".join((*rest, b"\n"))


def split_file(path: Path) -> dict[str, list[Part]]:
    """Cut a file into a long first part for training and two short ones, at ends of lines where it has any."""
    size, start, splits = path.stat().st_size, 0, {}
    for name, end in zip(FRACTIONS, (0.9, 0.95, 1.0), strict=True):
        stop = size if name == "test" else _cut_after(path, int(size * end))
        splits[name] = [Part(path, start, stop)]
        start = stop
    return splits


def raise_not_utf8(parts: Iterable[Part]) -> NoReturn:
    """Say where text that could not be decoded is wrong."""
    for part in parts:
        decoder = codecs.getincrementaldecoder("utf-8")()
        offset, lines, left = part.start, 1, part.size
        with part.path.open("rb") as file:
            file.seek(part.start)
            while True:
                block = file.read(min(left, BLOCK))
                left -= len(block)
                pending = len(decoder.getstate()[0])
                try:
                    decoder.decode(block, final=not block)
                except UnicodeDecodeError as error:
                    lines += block[: max(0, error.start - pending)].count(b"\n")
                    where = f"byte {offset - pending + error.start:,} (line {lines:,}"
                    where += ")" if part.start == 0 else f" after byte {part.start:,})"
                    raise ValueError(f"{part.path}: must be UTF-8, but is not at {where}: {error.reason}") from None
                if not block:
                    break
                offset += len(block)
                lines += block.count(b"\n")
    raise AssertionError("all of the text is UTF-8")


def check_not_empty(splits: dict[str, Sequence[Part]]) -> None:
    """Every split has some text."""
    for name, parts in splits.items():
        if not any(part.size for part in parts):
            files = ", ".join(dict.fromkeys(str(part.path) for part in parts)) or "no file"
            raise ValueError(f"{files}: the text for {name!r} is empty")


def _cut_after(path: Path, offset: int) -> int:
    with path.open("rb") as file:
        file.seek(offset)
        ahead = file.read(BLOCK)
    for separator in (b"\n", b" "):
        if separator in ahead:
            return offset + ahead.index(separator) + 1
    # no blank at all: between two characters, then; in UTF-8 only continuation bytes look like 0b10......
    return offset + next((i for i, byte in enumerate(ahead) if byte & 0xC0 != 0x80), len(ahead))
