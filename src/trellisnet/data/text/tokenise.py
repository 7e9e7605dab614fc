"""Text files to numbered tokens in the cache, once, in bounded memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from trellisnet.data.files.cache import cached
from trellisnet.data.files.progress import progress
from trellisnet.data.text.numbers import Numbers
from trellisnet.data.text.parts import Part, blocks, check_not_empty, raise_not_utf8
from trellisnet.vocabulary import UNKNOWN, Vocabulary

VERSION = "1"  # of what is in a cache entry; a new one makes old entries unused
AT_ONCE = 2**20  # numbers


def tokenise(
    name: str,
    splits: Mapping[str, Sequence[Part]],
    scheme: str,
    make_numbers: Callable[[], Numbers],
    *,
    add_unknown: bool,
) -> tuple[Vocabulary, dict[str, NDArray[np.unsignedinteger]]]:
    """The vocabulary of a text, and its splits as memory-mapped arrays of the smallest integer type.

    The vocabulary is that of the split "train", sorted by frequency, as softmaxes with clusters of rare words want it;
    tokens that are equally frequent are sorted as strings.

    Args:
        name: for people who look into the cache.
        splits: the text files.
        scheme: names everything about `make_numbers` that the result depends on.
        make_numbers: called if the cache has no such entry.
        add_unknown: the vocabulary gets an `<unk>` if it has none; otherwise a token that only other splits have is an
            error where the training text has no `<unk>`.
    """
    check_not_empty(dict(splits))
    digest = hashlib.sha256(f"{VERSION} {scheme} {add_unknown}".encode())
    for split, parts in splits.items():
        digest.update(f" {split}: {' '.join(part.hash for part in parts)}".encode())

    def build(folder: Path) -> None:
        try:
            numbers = make_numbers()
            _number(name, splits, numbers, folder)
            _renumber(splits, numbers, folder, add_unknown)
        except UnicodeDecodeError:
            raise_not_utf8(part for parts in splits.values() for part in parts)

    entry = cached(name, digest.hexdigest(), build)
    return Vocabulary.load(entry), {split: np.load(entry / f"{split}.npy", mmap_mode="r") for split in splits}


def _number(name: str, splits: Mapping[str, Sequence[Part]], numbers: Numbers, folder: Path) -> None:
    total = sum(part.size for parts in splits.values() for part in parts)
    with progress(f"tokenising {name}", total) as bar:
        for split, parts in splits.items():
            with _numbered(folder, split).open("wb") as file:
                for part in parts:
                    for block in blocks(part, numbers.separators):
                        file.write(_number_block(numbers, block, part).data)
                        bar.add(len(block))


def _number_block(numbers: Numbers, block: bytes, part: Part) -> NDArray[np.uint32]:
    try:
        return numbers(block)
    except UnicodeDecodeError:
        raise  # where it is, is found out for all kinds of tokens in one place
    except ValueError as error:
        raise ValueError(f"{part.path}: {error}") from error


def _renumber(splits: Mapping[str, Sequence[Part]], numbers: Numbers, folder: Path, add_unknown: bool) -> None:
    every = numbers.tokens()
    counts = np.zeros(len(every), dtype=np.int64)
    for some in _read(_numbered(folder, "train")):
        present = np.bincount(some)
        counts[: len(present)] += present
    order = sorted(numbers.kept(counts).tolist(), key=lambda number: (-counts[number], every[number]))
    tokens = [every[number] for number in order]
    if add_unknown and UNKNOWN not in tokens and numbers.kind != "bpe":
        tokens.append(UNKNOWN)
    vocabulary = Vocabulary(tokens, numbers.kind, numbers.merges)
    table = np.full(len(every), vocabulary.index.get(UNKNOWN, len(tokens)), dtype=np.uint32)
    table[order] = np.arange(len(order))
    smallest = np.min_scalar_type(max(len(tokens) - 1, 0))
    for split, parts in splits.items():
        source = _numbered(folder, split)
        with (folder / f"{split}.npy").open("wb") as file:
            _write_header(file, smallest, source.stat().st_size // 4)
            for some in _read(source):
                renumbered = table[some]
                if renumbered.max() == len(tokens):
                    new = every[some[renumbered.argmax()]]
                    raise ValueError(f"{parts[0].path}: has {new!r}, which the training text has not, nor {UNKNOWN!r}")
                file.write(renumbered.astype(smallest).data)
        source.unlink()
    vocabulary.save(folder)


def _numbered(folder: Path, split: str) -> Path:
    return folder / f"{split}.numbers"


def _read(path: Path) -> Iterator[NDArray[np.uint32]]:
    with path.open("rb") as file:
        while len(some := np.fromfile(file, dtype=np.uint32, count=AT_ONCE)):
            yield some


def _write_header(file: BinaryIO, dtype: np.dtype[np.generic], length: int) -> None:
    """The beginning of a `.npy` file, whose numbers follow by and by.

    They are written and not memory-mapped: on a full disk a write is an error, but a mapped page is a killed process.
    """
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(file, header)
