"""What a dataset of sequences is to the rest of the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trellisnet.data.batches import ItemBatches, Items
from trellisnet.data.checks import pick


@dataclass(frozen=True)
class Scale:
    """How values were standardised: (value - mean) / deviation, each channel for itself."""

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Scale:
        """That which gives values (N, C) mean 0 and deviation 1; a channel that never changes is only moved."""
        deviation = values.std(axis=0)
        return cls(values.mean(axis=0), np.where(deviation > 0, deviation, 1.0))

    def apply(self, values: NDArray[np.float64]) -> NDArray[np.float32]:
        """Values (..., C) as a model reads them."""
        return ((values - self.mean) / self.deviation).astype(np.float32)

    def restore(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Values (..., C) in their own units."""
        return values * self.deviation + self.mean


@dataclass(frozen=True)
class SequenceData:
    """Sequences and what is to be said of each.

    Attributes:
        name: of the dataset.
        task: "classification" of a whole sequence; "regression" of one or several numbers from a whole sequence, of
            which forecasting is a case; or "tokens", an answer at each step.
        input_size: channels of each step; of "tokens": how many different ones there are.
        output_size: classes, or numbers to be predicted.
        splits: the sequences, by "train", "valid" and "test", as far as there are.
        note: what someone who reads results on this data should know.
        labels: the names of the classes.
        input_scale, target_scale: how the values were standardised, if they were.
        each_step: of "regression": there are targets (B, T, D) at every step, not only (B, D) of the whole.
    """

    name: str
    task: str
    input_size: int
    output_size: int
    splits: Mapping[str, Items]
    note: str = ""
    labels: tuple[str, ...] = ()
    input_scale: Scale | None = None
    target_scale: Scale | None = None
    each_step: bool = False

    def batches(
        self,
        split: str,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
    ) -> ItemBatches:
        """Sequences of a split in batches; see `ItemBatches`."""
        return ItemBatches(
            pick("split", split, self.splits),
            batch_size,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            rank=rank,
            world_size=world_size,
        )
