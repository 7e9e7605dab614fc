"""What the ways to number tokens have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray


class Numbers(ABC):
    """Numbers tokens as they come. The vocabulary's own numbers, by frequency, are found in the end.

    Attributes:
        kind: that of the vocabulary.
        separators: bytes after which a text may be cut without tearing a token.
        merges: that of the vocabulary.
    """

    kind: ClassVar[str]
    separators: ClassVar[bytes]
    merges: list[tuple[str, str]] | None = None

    @abstractmethod
    def __call__(self, block: bytes) -> NDArray[np.uint32]:
        """The numbers of the tokens of a text."""

    @abstractmethod
    def tokens(self) -> list[str]:
        """All tokens so far, by number."""

    def kept(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of tokens that a vocabulary keeps, given how often each is in the training text."""
        return np.flatnonzero(counts)
