"""Tokenise text files into the cache, once, in bounded memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from trellisnet.data.files.cache import cached
from trellisnet.data.files.progress import progress
from trellisnet.data.text.base import Tokeniser
from trellisnet.data.text.ranges import FileRange, blocks, check_not_empty, raise_not_utf8
from trellisnet.vocabulary import UNKNOWN, Vocabulary

VERSION = "1"  # of the content of a cache entry; old entries are not used with a new version
AT_ONCE = 2**20  # ids


def tokenise(
    name: str,
    splits: Mapping[str, Sequence[FileRange]],
    scheme: str,
    make_tokeniser: Callable[[], Tokeniser],
    *,
    add_unknown: bool,
) -> tuple[Vocabulary, dict[str, NDArray[np.unsignedinteger]]]:
    """Return the vocabulary of a text, and its splits as memory-mapped arrays of the smallest integer type.

    The vocabulary is that of the split "train", sorted by frequency, because the heads with clusters of rare tokens
    need that. Tokens of equal frequency are sorted as strings.

    Args:
        name: a readable part of the name of the cache entry.
        splits: the text files.
        scheme: identifies the tokeniser and its settings in the cache key.
        make_tokeniser: called if the cache has no such entry.
        add_unknown: add `<unk>` to a vocabulary that has none. Otherwise a token that is not in the training text is an
            error, unless the training text has `<unk>`.

    Raises:
        ValueError: a split is empty, the text is not UTF-8, or a token is unknown.
    """
    check_not_empty(dict(splits))
    digest = hashlib.sha256(f"{VERSION} {scheme} {add_unknown}".encode())
    for split, file_ranges in splits.items():
        digest.update(f" {split}: {' '.join(file_range.hash for file_range in file_ranges)}".encode())

    def build(folder: Path) -> None:
        try:
            tokeniser = make_tokeniser()
            _write_provisional(name, splits, tokeniser, folder)
            _write_final(splits, tokeniser, folder, add_unknown)
        except UnicodeDecodeError:
            raise_not_utf8(file_range for file_ranges in splits.values() for file_range in file_ranges)

    entry = cached(name, digest.hexdigest(), build)
    return Vocabulary.load(entry), {split: np.load(entry / f"{split}.npy", mmap_mode="r") for split in splits}


def _write_provisional(
    name: str, splits: Mapping[str, Sequence[FileRange]], tokeniser: Tokeniser, folder: Path
) -> None:
    """Write the provisional ids of each split to a file."""
    total = sum(file_range.size for file_ranges in splits.values() for file_range in file_ranges)
    with progress(f"tokenising {name}", total) as bar:
        for split, file_ranges in splits.items():
            with _provisional(folder, split).open("wb") as file:
                for file_range in file_ranges:
                    for block in blocks(file_range, tokeniser.separators):
                        file.write(_tokenise_block(tokeniser, block, file_range).data)
                        bar.add(len(block))


def _tokenise_block(tokeniser: Tokeniser, block: bytes, file_range: FileRange) -> NDArray[np.uint32]:
    try:
        return tokeniser(block)
    except UnicodeDecodeError:
        raise  # `raise_not_utf8` finds its position
    except ValueError as error:
        raise ValueError(f"{file_range.path}: {error}") from error


def _write_final(
    splits: Mapping[str, Sequence[FileRange]], tokeniser: Tokeniser, folder: Path, add_unknown: bool
) -> None:
    """Sort the tokens by frequency; write the vocabulary, and each split with the final ids."""
    every = tokeniser.tokens()
    counts = np.zeros(len(every), dtype=np.int64)
    for ids in _read(_provisional(folder, "train")):
        present = np.bincount(ids)
        counts[: len(present)] += present
    order = sorted(tokeniser.kept(counts).tolist(), key=lambda i: (-counts[i], every[i]))
    tokens = [every[i] for i in order]
    if add_unknown and UNKNOWN not in tokens and tokeniser.kind != "bpe":
        tokens.append(UNKNOWN)
    vocabulary = Vocabulary(tokens, tokeniser.kind, tokeniser.merges)
    final = np.full(len(every), vocabulary.index.get(UNKNOWN, len(tokens)), dtype=np.uint32)  # by provisional id
    final[order] = np.arange(len(order))
    smallest = np.min_scalar_type(max(len(tokens) - 1, 0))
    for split, file_ranges in splits.items():
        provisional = _provisional(folder, split)
        with (folder / f"{split}.npy").open("wb") as file:
            _write_header(file, smallest, provisional.stat().st_size // 4)
            for ids in _read(provisional):
                sorted_ids = final[ids]
                if sorted_ids.max() == len(tokens):
                    new = every[ids[sorted_ids.argmax()]]
                    path = file_ranges[0].path
                    raise ValueError(f"{path}: has {new!r}, which is not in the training text, nor is {UNKNOWN!r}")
                file.write(sorted_ids.astype(smallest).data)
        provisional.unlink()
    vocabulary.save(folder)


def _provisional(folder: Path, split: str) -> Path:
    return folder / f"{split}.provisional"


def _read(path: Path) -> Iterator[NDArray[np.uint32]]:
    with path.open("rb") as file:
        while len(ids := np.fromfile(file, dtype=np.uint32, count=AT_ONCE)):
            yield ids


def _write_header(file: BinaryIO, dtype: np.dtype[np.generic], length: int) -> None:
    """Write the header of a one-dimensional `.npy` file; the ids are appended block by block.

    The file is not memory-mapped for writing: on a full disk, a write raises an error, but a mapped page kills the
    process.
    """
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(file, header)
