"""The interface of the tokenisers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray


class Tokeniser(ABC):
    """Maps text to provisional token ids. When all text is read, `tokenise` sorts the ids by frequency.

    Attributes:
        kind: kind of the vocabulary.
        separators: bytes after which a text may be cut without splitting a token.
        merges: merges of the vocabulary, for BPE.
    """

    kind: ClassVar[str]
    separators: ClassVar[bytes]
    merges: list[tuple[str, str]] | None = None

    @abstractmethod
    def __call__(self, block: bytes) -> NDArray[np.uint32]:
        """Return the provisional token ids of a block of text."""

    @abstractmethod
    def tokens(self) -> list[str]:
        """Return all tokens so far, by provisional id."""

    def kept(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the provisional ids that the vocabulary keeps, given their counts in the training text."""
        return np.flatnonzero(counts)
