"""Characters as numbers."""

from __future__ import annotations

import codecs

import numpy as np
from numpy.typing import NDArray

from trellisnet.data.text.numbers import Numbers


class CharacterNumbers(Numbers):
    r"""A character's number is its code point.

    >>> CharacterNumbers()(b"abc\n").tolist()
    [97, 98, 99, 10]
    """

    kind = "characters"
    separators = b""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")()  # keeps the beginning of a torn character
        self._highest = 0

    def __call__(self, block: bytes) -> NDArray[np.uint32]:
        """The numbers of the characters of a text."""
        codes = np.frombuffer(self._decoder.decode(block).encode("utf-32-le"), dtype="<u4")
        self._highest = max(self._highest, int(codes.max(initial=0)))
        return codes

    def tokens(self) -> list[str]:
        """All characters up to the highest so far, by number."""
        return [chr(code) for code in range(self._highest + 1)]


class MikolovCharacters(CharacterNumbers):
    r"""The Penn treebank as characters, derived from the word files as Mikolov's character files are.

    The outer blanks of a line go, inner blanks become `_`, and the end of the line is a symbol of its own, here the
    line feed.

    >>> bytes(MikolovCharacters()(b" no it was n't \n").astype("u1"))
    b"no_it_was_n't\n"
    """

    separators = b"\n"

    def __call__(self, block: bytes) -> NDArray[np.uint32]:
        """The numbers of the characters of a text in whole lines."""
        lines = block.removesuffix(b"\n").split(b"\n")
        return super().__call__(b"".join(line.strip(b" ").replace(b" ", b"_") + b"\n" for line in lines))
