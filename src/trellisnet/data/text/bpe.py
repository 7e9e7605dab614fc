"""Pieces of words as numbers: byte-pair encoding, through the `tokenizers` package."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from trellisnet.data.text.numbers import Numbers
from trellisnet.data.text.parts import Part, blocks
from trellisnet.vocabulary import make_tokenizer, require_tokenizers


class BpeNumbers(Numbers):
    """Learns pieces from a training text and numbers them as the `tokenizers` package does.

    Args:
        training: the text to learn from.
        size: number of pieces, of which the 256 bytes are the first.
    """

    kind = "bpe"
    separators = b"\n"  # pieces depend on what stands around them, but never across lines

    def __init__(self, training: Iterable[Part], size: int) -> None:
        tokenizers = require_tokenizers()
        if size < 256:
            raise ValueError(f"vocabulary_size must be at least 256, the number of bytes, got {size}")
        learner = make_tokenizer({}, [])
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=size, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False
        )
        learner.train_from_iterator(_lines(training), trainer)
        learned = json.loads(learner.to_str())["model"]
        self._index: dict[str, int] = learned["vocab"]
        self.merges = [(left, right) for left, right in learned["merges"]]
        self._tokenizer = learner

    def __call__(self, block: bytes) -> NDArray[np.uint32]:
        """The numbers of the pieces of a text in whole lines."""
        lines = self._tokenizer.encode_batch_fast(block.decode().splitlines(keepends=True), add_special_tokens=False)
        return np.concatenate([np.zeros(0, dtype=np.uint32), *(np.array(line.ids, dtype=np.uint32) for line in lines)])

    def tokens(self) -> list[str]:
        """All pieces, by number."""
        return sorted(self._index, key=self._index.__getitem__)

    def kept(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers that a vocabulary keeps: all, so that other texts can be written too."""
        return np.arange(len(self._index))


def _lines(parts: Iterable[Part]) -> Iterator[list[str]]:
    for part in parts:
        for block in blocks(part, b"\n"):
            yield block.decode().splitlines(keepends=True)
