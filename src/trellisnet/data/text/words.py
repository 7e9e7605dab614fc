"""Words as tokens, a block at a time.

Plain Python, `split` and a dictionary, makes an object of every word and hashes it: a hundred million times for
WikiText-103. Here NumPy finds all words of a block at once and computes a 64-bit key for each of them. A table maps
keys to ids. Only words that are not in the table are handled one by one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trellisnet.data.text.base import Tokeniser
from trellisnet.vocabulary import END_OF_LINE

LONGEST = 2**16  # bytes per word
TABLE_BITS = 22
IS_BLANK = np.zeros(256, dtype=bool)
IS_BLANK[list(b"\t\n\v\f\r ")] = True  # as bytes.split()
LOW_BYTES = np.array([2 ** (8 * n) - 1 for n in range(9)], dtype=np.uint64)
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio: odd, with bits that look random


class WordTokeniser(Tokeniser):
    """Provisional ids are in the order of first occurrence; a line ends with `<eos>`.

    >>> tokeniser = WordTokeniser()
    >>> tokeniser(b"a rose is a rose").tolist(), tokeniser.tokens()
    ([0, 1, 2, 0, 1], ['a', 'rose', 'is'])
    """

    kind = "words"
    separators = b" \n"

    def __init__(self) -> None:
        self._words: list[bytes] = []
        self._ids: dict[int, int] = {}  # by key
        # a table in front of the dictionary; if two keys share a slot, the later one is in the dictionary only
        self._slot_keys = np.zeros(2**TABLE_BITS, dtype=np.uint64)
        self._slot_ids = np.zeros(2**TABLE_BITS, dtype=np.uint32)

    def __call__(self, block: bytes) -> NDArray[np.uint32]:
        """Return the ids of the words of a block of text.

        Raises:
            ValueError: a word is longer than `LONGEST` bytes.
        """
        text, starts, lengths = _find_words(block.replace(b"\n", f" {END_OF_LINE} ".encode()))
        if lengths.max(initial=0) > LONGEST:
            start = starts[lengths.argmax()]
            raise ValueError(
                f"words must have at most {LONGEST:,} bytes, got one of {lengths.max():,} that begins with "
                f"{text[start : start + 20].tobytes()!r}"
            )
        keys = _keys(text, starts, lengths)
        slots = (keys >> np.uint64(64 - TABLE_BITS)).view(np.int64)  # signed, as indices are
        ids: NDArray[np.uint32] = self._slot_ids[slots]
        missed = np.flatnonzero(self._slot_keys[slots] != keys)
        if len(missed):
            different, first, inverse = np.unique(keys[missed], return_index=True, return_inverse=True)
            different = different.tolist()
            new = [i for i, key in enumerate(different) if key not in self._ids]
            for i in sorted(new, key=first.__getitem__):  # in the order of the text
                at = missed[first[i]]
                self._add(different[i], text[starts[at] : starts[at] + lengths[at]].tobytes())
            found = np.array([self._ids[key] for key in different], dtype=np.uint32)
            ids[missed] = found[inverse]
        return ids

    def tokens(self) -> list[str]:
        """Return all words so far, by id."""
        return [word.decode() for word in self._words]

    def _add(self, key: int, word: bytes) -> None:
        new_id = self._ids[key] = len(self._words)
        self._words.append(word)
        slot = key >> (64 - TABLE_BITS)
        if not self._slot_keys[slot]:
            self._slot_keys[slot], self._slot_ids[slot] = key, new_id


def _find_words(block: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Find the words of a block.

    Returns:
        The text as bytes, padded with blanks to a multiple of 8 bytes with at least 8 to spare; the start of each word
        in it; and the length of each word.
    """
    text = np.frombuffer(b" " + block + b" " * (9 + (-len(block) - 2) % 8), dtype=np.uint8)
    blank = IS_BLANK[text]
    edges = np.flatnonzero(blank[1:] != blank[:-1]) + 1
    starts = edges[0::2]
    return text, starts, edges[1::2] - starts


def _keys(text: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Hash each word: start from its length, then mix in 8 bytes per iteration.

    Words of equal length up to 8 bytes never collide, because each operation is invertible. The probability that any
    two of the 268,000 words of WikiText-103 collide is 2 in a billion. The probability that a key is 0, which marks an
    empty slot, is smaller.
    """
    aligned = text.view("<u8")
    keys = lengths.astype(np.uint64) * MULTIPLIER  # the length separates a word from the same word plus zero bytes
    which: slice | NDArray[np.int64] = slice(None)
    while len(starts):
        index, shift = starts >> 3, ((starts & 7) << 3).astype(np.uint64)
        low, high = aligned[index] >> shift, aligned[index + 1]
        eight = low | ((high << np.uint64(1)) << (np.uint64(63) - shift))  # two shifts, because one by 64 is undefined
        mixed = (keys[which] ^ (eight & LOW_BYTES[np.minimum(lengths, 8)])) * MULTIPLIER
        keys[which] = mixed ^ (mixed >> np.uint64(32))
        longer = np.flatnonzero(lengths > 8)
        which = longer if isinstance(which, slice) else which[longer]
        starts, lengths = starts[longer] + 8, lengths[longer] - 8
    return keys
