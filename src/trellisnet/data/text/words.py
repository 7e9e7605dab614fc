"""Words as numbers, a million at a time.

Python's own way, `split` and a dictionary, makes an object of every word and hashes it: a hundred million times for
WikiText-103. Here NumPy finds the words of a block and computes a key of 64 bits for each of them at once; a table maps
keys to numbers; and only words that the table does not hold are looked at one by one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trellisnet.data.text.numbers import Numbers
from trellisnet.vocabulary import END_OF_LINE

LONGEST = 2**16  # bytes of a word
TABLE_BITS = 22
IS_BLANK = np.zeros(256, dtype=bool)
IS_BLANK[list(b"\t\n\v\f\r ")] = True  # as bytes.split()
LOW_BYTES = np.array([2 ** (8 * n) - 1 for n in range(9)], dtype=np.uint64)
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd, its bits look random: 2^64 over the golden ratio


class WordNumbers(Numbers):
    """Numbers words in the order in which it meets them; a line ends in `<eos>`.

    >>> numbers = WordNumbers()
    >>> numbers(b"a rose is a rose").tolist(), numbers.tokens()
    ([0, 1, 2, 0, 1], ['a', 'rose', 'is'])
    """

    kind = "words"
    separators = b" \n"

    def __init__(self) -> None:
        self._words: list[bytes] = []
        self._numbers: dict[int, int] = {}
        # in front of the dictionary, and without chains: where two keys share a slot, the later one stays outside
        self._slot_keys = np.zeros(2**TABLE_BITS, dtype=np.uint64)
        self._slot_numbers = np.zeros(2**TABLE_BITS, dtype=np.uint32)

    def __call__(self, block: bytes) -> NDArray[np.uint32]:
        """The numbers of the words of a text."""
        text, starts, lengths = _find_words(block.replace(b"\n", f" {END_OF_LINE} ".encode()))
        if lengths.max(initial=0) > LONGEST:
            start = starts[lengths.argmax()]
            raise ValueError(
                f"words must have at most {LONGEST:,} bytes, got one of {lengths.max():,} that begins with "
                f"{text[start : start + 20].tobytes()!r}"
            )
        keys = _keys(text, starts, lengths)
        slots = (keys >> np.uint64(64 - TABLE_BITS)).view(np.int64)  # signed, as indices are
        numbers: NDArray[np.uint32] = self._slot_numbers[slots]
        missed = np.flatnonzero(self._slot_keys[slots] != keys)
        if len(missed):
            different, first, inverse = np.unique(keys[missed], return_index=True, return_inverse=True)
            different = different.tolist()
            new = [i for i, key in enumerate(different) if key not in self._numbers]
            for i in sorted(new, key=first.__getitem__):  # in the order of the text
                at = missed[first[i]]
                self._add(different[i], text[starts[at] : starts[at] + lengths[at]].tobytes())
            found = np.array([self._numbers[key] for key in different], dtype=np.uint32)
            numbers[missed] = found[inverse]
        return numbers

    def tokens(self) -> list[str]:
        """All words so far, by number."""
        return [word.decode() for word in self._words]

    def _add(self, key: int, word: bytes) -> None:
        number = self._numbers[key] = len(self._words)
        self._words.append(word)
        slot = key >> (64 - TABLE_BITS)
        if not self._slot_keys[slot]:
            self._slot_keys[slot], self._slot_numbers[slot] = key, number


def _find_words(block: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """The text between blanks, whole in words of 8 bytes with one to spare; where its words start; their lengths."""
    text = np.frombuffer(b" " + block + b" " * (9 + (-len(block) - 2) % 8), dtype=np.uint8)
    blank = IS_BLANK[text]
    edges = np.flatnonzero(blank[1:] != blank[:-1]) + 1
    starts = edges[0::2]
    return text, starts, edges[1::2] - starts


def _keys(text: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A hash of each word: its length, then 8 bytes in each turn, for those words that have more.

    Words of equal length up to 8 bytes never collide, since each operation can be undone. That any two of the 268,000
    words of WikiText-103 do has a chance of 2 in a billion; that a key is 0, which stands for an empty slot, a smaller.
    """
    aligned = text.view("<u8")
    keys = lengths.astype(np.uint64) * MULTIPLIER  # so that a word that ends in zero bytes is not that without them
    which: slice | NDArray[np.int64] = slice(None)
    while len(starts):
        index, shift = starts >> 3, ((starts & 7) << 3).astype(np.uint64)
        low, high = aligned[index] >> shift, aligned[index + 1]
        eight = low | ((high << np.uint64(1)) << (np.uint64(63) - shift))  # a shift by 64 is not defined
        mixed = (keys[which] ^ (eight & LOW_BYTES[np.minimum(lengths, 8)])) * MULTIPLIER
        keys[which] = mixed ^ (mixed >> np.uint64(32))
        longer = np.flatnonzero(lengths > 8)
        which = longer if isinstance(which, slice) else which[longer]
        starts, lengths = starts[longer] + 8, lengths[longer] - 8
    return keys
