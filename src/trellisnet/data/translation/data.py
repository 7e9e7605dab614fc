"""The interface of a dataset of sentence pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trellisnet.data.batches import ItemBatches, Items
from trellisnet.data.checks import pick
from trellisnet.vocabulary import Vocabulary

PADDING = -100  # of targets: ignored, as in torch's own losses


class PairItems(Items):
    """Sentences and their translations as token ids.

    Args:
        sources: token ids of each sentence, with the line end as the last.
        targets: likewise of each translation.
    """

    lengths: NDArray[np.int64]

    def __init__(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> None:
        self.lengths = np.array([len(row) for row in sources], dtype=np.int64)
        self.target_lengths = np.array([len(row) for row in targets], dtype=np.int64)
        self._sources, self._targets = _joined(sources), _joined(targets)
        self._source_ends, self._target_ends = self.lengths.cumsum(), self.target_lengths.cumsum()

    def __len__(self) -> int:
        return len(self._source_ends)

    @property
    def sizes(self) -> tuple[NDArray[np.int64], ...]:
        return self.lengths, self.target_lengths

    def take(self, indices: NDArray[np.int64], steps: int | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
        longest = int(self.target_lengths[indices].max())
        inputs = np.zeros((len(indices), int(self.lengths[indices].max()) if steps is None else steps), dtype=np.int64)
        targets = np.full((len(indices), longest), PADDING, dtype=np.int64)
        for row, i in enumerate(indices):
            source, target = self.pair(int(i))
            inputs[row, : len(source)], targets[row, : len(target)] = source, target
        return inputs, targets

    def pair(self, i: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the token ids of a sentence and of its translation."""
        source = self._sources[self._source_ends[i] - self.lengths[i] : self._source_ends[i]]
        target = self._targets[self._target_ends[i] - self.target_lengths[i] : self._target_ends[i]]
        return source, target


def _joined(rows: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(0, dtype=np.int64), *(np.asarray(row, dtype=np.int64) for row in rows)])


@dataclass(frozen=True)
class PairData:
    """Sentences and their translations.

    Attributes:
        name: name of the dataset.
        source, target: the tokens of both sides.
        splits: "train", "valid" and "test".
        note: facts that readers of results need.
        task: what is learned from it.
        ahead: whether targets are later inputs, as in `SequenceData`.
    """

    name: str
    source: Vocabulary
    target: Vocabulary
    splits: Mapping[str, PairItems]
    note: str = ""
    task: ClassVar[str] = "translation"
    ahead: ClassVar[bool] = False

    def facts(self) -> dict[str, Any]:
        """All but the sentences and the vocabularies, in types that JSON knows."""
        return {"name": self.name, "note": self.note, "kind": self.target.kind}

    def batches(self, split: str, batch_size: int, **options: Any) -> ItemBatches:
        """Return the batches of a split; the options are those of `ItemBatches`."""
        return ItemBatches(pick("split", split, self.splits), batch_size, **options)
