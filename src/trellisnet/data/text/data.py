"""The interface of a text dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trellisnet.data.checks import pick
from trellisnet.data.text.batches import TextBatches
from trellisnet.vocabulary import Vocabulary


@dataclass(frozen=True)
class TextData:
    """A text as token ids.

    Attributes:
        name: name of the dataset.
        vocabulary: the tokens.
        splits: "train", "valid" and "test", each one memory-mapped array of token ids.
        note: facts that readers of results on this text need.
        task: what is learned from it.
    """

    name: str
    vocabulary: Vocabulary
    splits: Mapping[str, NDArray[np.unsignedinteger]]
    note: str = ""
    task: ClassVar[str] = "language"

    def facts(self) -> dict[str, Any]:
        """All but the text itself and its vocabulary, in types that JSON knows."""
        return {"name": self.name, "note": self.note, "kind": self.vocabulary.kind}

    def batches(
        self,
        split: str,
        batch_size: int,
        steps: int,
        *,
        context: int = 0,
        seed: int | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> TextBatches:
        """Return the batches of a split: windows of the text in columns, see `TextBatches`."""
        ids = pick("split", split, self.splits)
        return TextBatches(ids, batch_size, steps, context=context, seed=seed, rank=rank, world_size=world_size)
