"""The interface of a dataset of sequences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trellisnet.data.batches import ItemBatches, Items
from trellisnet.data.checks import pick


@dataclass(frozen=True)
class Scale:
    """A standardisation of values: (value - mean) / deviation, per channel."""

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Scale:
        """Return the scale that standardises each channel of values (N, C); a constant channel is only shifted."""
        deviation = values.std(axis=0)
        return cls(values.mean(axis=0), np.where(deviation > 0, deviation, 1.0))

    def apply(self, values: NDArray[np.float64]) -> NDArray[np.float32]:
        """Standardise values (..., C)."""
        return ((values - self.mean) / self.deviation).astype(np.float32)

    def restore(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Convert standardised values (..., C) back to their own units."""
        return values * self.deviation + self.mean


@dataclass(frozen=True)
class SequenceData:
    """Sequences and their targets.

    Attributes:
        name: name of the dataset.
        task: "classification" of whole sequences; "regression" of one or several numbers per sequence, which includes
            forecasting; or "tokens", one target token per step.
        input_size: number of channels; for "tokens", the size of the vocabulary.
        output_size: number of classes, of tokens, or of numbers to predict.
        splits: the sequences of the splits that exist: "train", "valid", "test".
        note: facts that readers of results on this data need.
        labels: names of the classes.
        input_scale, target_scale: the standardisation of inputs and targets, if there is one.
        each_step: of "regression": targets (B, T, D) at every step, not only (B, D) of the whole sequence.
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
        """Return the batches of a split; see `ItemBatches`."""
        return ItemBatches(
            pick("split", split, self.splits),
            batch_size,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            rank=rank,
            world_size=world_size,
        )
