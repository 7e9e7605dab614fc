"""Characters as tokens."""

from __future__ import annotations

import codecs

import numpy as np
from numpy.typing import NDArray

from trellisnet.data.text.base import Tokeniser


class CharacterTokeniser(Tokeniser):
    r"""The provisional id of a character is its code point.

    >>> CharacterTokeniser()(b"abc\n").tolist()
    [97, 98, 99, 10]
    """

    kind = "characters"
    separators = b""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")()  # keeps the start of a character that a block cuts
        self._highest = 0

    def __call__(self, block: bytes) -> NDArray[np.uint32]:
        """Return the code points of a block of text."""
        codes = np.frombuffer(self._decoder.decode(block).encode("utf-32-le"), dtype="<u4")
        self._highest = max(self._highest, int(codes.max(initial=0)))
        return codes

    def tokens(self) -> list[str]:
        """Return all characters up to the highest code point so far."""
        return [chr(code) for code in range(self._highest + 1)]


class MikolovCharacters(CharacterTokeniser):
    r"""The characters of the Penn treebank, derived from its word files like Mikolov's character files.

    Blanks at the ends of a line are removed, other blanks become `_`, and the end of a line is a token, here the line
    feed.

    >>> bytes(MikolovCharacters()(b" no it was n't \n").astype("u1"))
    b"no_it_was_n't\n"
    """

    separators = b"\n"

    def __call__(self, block: bytes) -> NDArray[np.uint32]:
        """Return the code points of a text of whole lines."""
        lines = block.removesuffix(b"\n").split(b"\n")
        return super().__call__(b"".join(line.strip(b" ").replace(b" ", b"_") + b"\n" for line in lines))
