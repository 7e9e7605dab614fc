"""Synthetic stress tests of long-term memory, generated on access.

A sequence depends on the seed, the split and its index only: it is the same in every process and every run.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trellisnet.core.checks import positive_int, seed_number
from trellisnet.data.batches import Items
from trellisnet.data.sequences.data import SequenceData

SPLITS = {"train": 0, "valid": 1, "test": 2}
MEMORISED = 10  # symbols to repeat
SYMBOLS = 8
BLANK, MARK = 0, 9  # the symbols themselves are 1 to 8


class _Generated(Items):
    def __init__(self, steps: int, count: int, seed: int, split: str) -> None:
        self.steps, self.count, self.seed, self.split = steps, count, seed, SPLITS[split]

    def __len__(self) -> int:
        return self.count

    def _generator(self, index: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, self.split, index])


class CopyMemoryItems(_Generated):
    """Sequences of symbols: inputs (B, steps + 20) and targets (B, steps + 20)."""

    def take(self, indices: NDArray[np.int64], steps: int | None = None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return inputs and targets of some sequences."""
        inputs = np.full((len(indices), self.steps + 2 * MEMORISED), BLANK, dtype=np.int64)
        targets = inputs.copy()
        inputs[:, -MEMORISED - 1] = MARK
        for row, index in enumerate(indices.tolist()):
            inputs[row, :MEMORISED] = self._generator(index).integers(1, SYMBOLS + 1, MEMORISED)
        targets[:, -MEMORISED:] = inputs[:, :MEMORISED]
        return inputs, targets


class AddingItems(_Generated):
    """Inputs (B, steps, 2), numbers and marks, and targets (B, 1)."""

    def take(
        self, indices: NDArray[np.int64], steps: int | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return inputs and targets of some sequences."""
        inputs = np.zeros((len(indices), self.steps, 2), dtype=np.float32)
        half = self.steps // 2
        for row, index in enumerate(indices.tolist()):
            generator = self._generator(index)
            inputs[row, :, 0] = generator.random(self.steps, dtype=np.float32)
            inputs[row, [generator.integers(half), generator.integers(half, self.steps)], 1] = 1
        return inputs, inputs.prod(axis=2).sum(axis=1, keepdims=True)


def load_copy_memory(
    steps: int = 1000, *, train_items: int = 10_000, test_items: int = 1_000, seed: int = 0
) -> SequenceData:
    """Load copy memory (Hochreiter and Schmidhuber 1997, in the form of Arjovsky et al. 2016).

    An input has ten symbols, then `steps` blanks of which the last is replaced by a mark, then ten blanks. The target
    is the ten symbols at the last ten steps, and blanks before. A model without memory reaches a loss of 10 ln(8) /
    (steps + 20).

    Args:
        steps: number of steps between the symbols and their copy.
        train_items: number of sequences per epoch.
        test_items: number of sequences of each of the splits "valid" and "test".
        seed: seed of all random numbers.

    >>> inputs, targets = load_copy_memory(3).splits["train"].take(np.array([0]), None)
    >>> inputs.tolist()
    [[7, 6, 5, 3, 3, 1, 1, 1, 2, 7, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]]
    >>> targets.tolist()
    [[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 6, 5, 3, 3, 1, 1, 1, 2, 7]]
    """
    splits = {
        split: CopyMemoryItems(positive_int("steps", steps), count, seed_number("seed", seed), split)
        for split, count in _sizes(train_items, test_items).items()
    }
    note = f"{MEMORISED} of {SYMBOLS} symbols over {steps} steps; without memory {_blind_copy(steps):.4f} nats per step"
    return SequenceData("copy-memory", "tokens", SYMBOLS + 2, SYMBOLS + 2, splits, note)


def load_adding(steps: int = 600, *, train_items: int = 50_000, test_items: int = 1_000, seed: int = 0) -> SequenceData:
    """Load the adding problem (Hochreiter and Schmidhuber 1997): predict the sum of the two marked numbers.

    The numbers are uniform in [0, 1). One mark is in the first half and one in the second. A model that always predicts
    1 has a mean squared error of 1/6.

    Args:
        steps: length of a sequence, at least 2.
        train_items: number of sequences per epoch.
        test_items: number of sequences of each of the splits "valid" and "test".
        seed: seed of all random numbers.
    """
    splits = {
        split: AddingItems(positive_int("steps", steps, minimum=2), count, seed_number("seed", seed), split)
        for split, count in _sizes(train_items, test_items).items()
    }
    return SequenceData("adding", "regression", 2, 1, splits, "predicting 1 always has a mean squared error of 0.1667")


def _sizes(train_items: int, test_items: int) -> dict[str, int]:
    test = positive_int("test_items", test_items)
    return {"train": positive_int("train_items", train_items), "valid": test, "test": test}


def _blind_copy(steps: int) -> float:
    """Return the loss per step of a model that guesses the symbols."""
    return float(MEMORISED * np.log(SYMBOLS) / (steps + 2 * MEMORISED))
