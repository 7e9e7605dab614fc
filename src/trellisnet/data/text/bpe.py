"""Byte-pair encoding with the `tokenizers` package."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from trellisnet.data.text.base import Tokeniser
from trellisnet.data.text.ranges import FileRange, blocks
from trellisnet.vocabulary import make_tokenizer, require_tokenizers


class BpeTokeniser(Tokeniser):
    """Learns pieces of words from a training text; ids are those of the `tokenizers` package.

    Args:
        training: the text to learn from.
        size: number of pieces, including the 256 bytes.

    Raises:
        ValueError: `size` is below 256.
    """

    kind = "bpe"
    separators = b"\n"  # a piece depends on its neighbours within a line, never on other lines

    def __init__(self, training: Iterable[FileRange], size: int) -> None:
        self._index, self.merges = learn_pieces(_lines(training), size)
        self._tokenizer = make_tokenizer(self._index, self.merges)

    def __call__(self, block: bytes) -> NDArray[np.uint32]:
        """Return the ids of the pieces of a text of whole lines."""
        lines = self._tokenizer.encode_batch_fast(block.decode().splitlines(keepends=True), add_special_tokens=False)
        return np.concatenate([np.zeros(0, dtype=np.uint32), *(np.array(line.ids, dtype=np.uint32) for line in lines)])

    def tokens(self) -> list[str]:
        """Return all pieces, by id."""
        return sorted(self._index, key=self._index.__getitem__)

    def kept(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return all ids, so that the vocabulary can encode any other text."""
        return np.arange(len(self._index))


def learn_pieces(lines: Iterable[list[str]], size: int) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Learn pieces of words.

    Args:
        lines: blocks of lines.
        size: number of pieces, including the 256 bytes.

    Returns:
        The id of each piece, and the merges in order.

    Raises:
        ValueError: `size` is below 256.
    """
    tokenizers = require_tokenizers()
    if size < 256:
        raise ValueError(f"vocabulary_size must be at least 256, the number of bytes, got {size}")
    learner = make_tokenizer({}, [])
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    learner.train_from_iterator(lines, trainer)
    learned = json.loads(learner.to_str())["model"]
    return learned["vocab"], [(left, right) for left, right in learned["merges"]]


def _lines(file_ranges: Iterable[FileRange]) -> Iterator[list[str]]:
    for file_range in file_ranges:
        for block in blocks(file_range, b"\n"):
            yield block.decode().splitlines(keepends=True)
