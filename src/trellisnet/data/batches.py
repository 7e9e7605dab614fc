"""Batches in an order that can be left and taken up again, and shared among processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trellisnet.core.checks import positive_int


@dataclass(frozen=True)
class Batch:
    """What a model reads in one step.

    Attributes:
        inputs: (B, T) numbers of tokens, or (B, T, C) values.
        targets: (B, T) the token after each; (B,) class labels; or (B, D) values.
        lengths: (B,) steps of each sequence, if they are unequal; what comes after is zero.
        continues: each row goes on where the same row of the batch before ended: the state carries over.
    """

    inputs: Tensor
    targets: Tensor
    lengths: Tensor | None = None
    continues: bool = False

    def to(self, device: torch.device | str) -> Batch:
        """The same on a device. The lengths stay: shapes depend on them."""
        return Batch(
            self.inputs.to(device, non_blocking=True),
            self.targets.to(device, non_blocking=True),
            self.lengths,
            self.continues,
        )

    def split(self, parts: int) -> list[Batch]:
        """The same rows in so many parts."""
        lengths = [None] * parts if self.lengths is None else list(self.lengths.tensor_split(parts))
        pieces = zip(self.inputs.tensor_split(parts), self.targets.tensor_split(parts), lengths, strict=True)
        return [Batch(inputs, targets, length, self.continues) for inputs, targets, length in pieces]


class Batches(ABC):
    """Goes through a dataset epoch by epoch.

    A loop over it is the rest of the current epoch. `state_dict` says how far it is, in whole batches of all processes
    together: a run can go on from it exactly, also with another number of processes.

    Attributes:
        epoch: how many epochs are complete.
        position: how many batches of the current epoch have been given.
    """

    def __init__(self, batch_size: int, rank: int, world_size: int) -> None:
        self.batch_size = positive_int("batch_size", batch_size)
        self.world_size = positive_int("world_size", world_size)
        self.rank = positive_int("rank", rank, minimum=0)
        if rank >= world_size:
            raise ValueError(f"rank must be below world_size = {world_size}, got {rank}")
        if batch_size % world_size:
            raise ValueError(f"batch_size must be a multiple of world_size = {world_size}, got {batch_size}")
        self.epoch = 0
        self.position = 0

    @abstractmethod
    def __len__(self) -> int:
        """Batches of an epoch."""

    def __iter__(self) -> Iterator[Batch]:
        while self.position < len(self):
            self.position += 1  # before it is given: who saves now has seen it
            if (batch := self._batch(self.position - 1)) is not None:
                yield batch
        self.epoch, self.position = self.epoch + 1, 0

    def state_dict(self) -> dict[str, Any]:
        """Where it is, and what that depends on."""
        return {"epoch": self.epoch, "position": self.position, **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to where another one was that had the same data, batch size and order."""
        for name, value in self._identity().items():
            if state.get(name) != value:
                raise ValueError(f"the state must be of batches with {name} = {value!r}, got {state.get(name)!r}")
        epoch = positive_int("epoch", state.get("epoch"), minimum=0)
        position = positive_int("position", state.get("position"), minimum=0)
        if position > len(self):
            raise ValueError(f"position must be at most {len(self)}, the batches of an epoch, got {position}")
        self.epoch, self.position = epoch, position

    @abstractmethod
    def _identity(self) -> dict[str, Any]:
        """What two of them must have in common to give the same batches."""

    @abstractmethod
    def _batch(self, position: int) -> Batch | None:
        """This process's part of a batch; None if it is too small for all to have one."""


class TextBatches(Batches):
    """A text in `batch_size` columns that are read side by side, window by window.

    With the state carried from batch to batch, each column is one long text. What does not fill the columns, fewer
    tokens than there are columns, is left out: read with `batch_size=1` to count every token.

    Args:
        ids: the text, one-dimensional.
        batch_size: columns, of all processes together.
        steps: how far a window goes on from the one before; the last one of an epoch may be shorter.
        context: so many steps of the window before are read again at the beginning of each, for models that keep no
            state from one to the next; a window then has `context + steps` steps.
        rank, world_size: this process gets columns `rank * batch_size / world_size` and the following.

    >>> batches = TextBatches(np.arange(9), batch_size=2, steps=3)
    >>> [batch.inputs.tolist() for batch in batches]
    [[[0, 1, 2], [4, 5, 6]], [[3], [7]]]
    """

    def __init__(
        self,
        ids: NDArray[np.unsignedinteger],
        batch_size: int,
        steps: int,
        *,
        context: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__(batch_size, rank, world_size)
        self.steps = positive_int("steps", steps)
        self.context = positive_int("context", context, minimum=0)
        self.ids = ids
        self.column = (len(ids) - 1) // batch_size  # the last token of all has none after it
        if self.column <= context:
            raise ValueError(
                f"ids must have more than {batch_size * (context + 1)} tokens for batch_size = {batch_size} and "
                f"context = {context}, got {len(ids)}"
            )

    def __len__(self) -> int:
        return (self.column - self.context + self.steps - 1) // self.steps

    def _identity(self) -> dict[str, Any]:
        return {
            "tokens": len(self.ids),
            "batch_size": self.batch_size,
            "steps": self.steps,
            "context": self.context,
        }

    def _batch(self, position: int) -> Batch:
        start = position * self.steps
        stop = min(start + self.context + self.steps, self.column)
        share = self.batch_size // self.world_size
        columns = range(self.rank * share, (self.rank + 1) * share)
        rows = [self.ids[column * self.column + start : column * self.column + stop + 1] for column in columns]
        window = torch.from_numpy(np.stack(rows).astype(np.int64))  # one step more than is read
        return Batch(window[:, :-1], window[:, 1:], continues=position > 0 and self.context == 0)


class Items(ABC):
    """Sequences that can be had in any order.

    Attributes:
        lengths: steps of each, or None if all have the same.
    """

    lengths: NDArray[np.int64] | None = None

    @abstractmethod
    def __len__(self) -> int:
        """How many there are."""

    @abstractmethod
    def take(self, indices: NDArray[np.int64], steps: int | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
        """Inputs and targets of some of them; sequences of unequal lengths are filled up with zeros to `steps`."""


class ItemBatches(Batches):
    """Sequences in batches, in order or shuffled anew in every epoch.

    Args:
        items: the sequences.
        batch_size: of all processes together.
        shuffle: the order of an epoch is a function of `seed` and the epoch's number alone.
        seed: of the shuffling.
        drop_last: leave out what does not fill a batch at the end of an epoch. Otherwise the processes share it as
            evenly as they can, and one that gets nothing has a batch less.
        rank, world_size: this process gets this part of every batch.
    """

    def __init__(
        self,
        items: Items,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__(batch_size, rank, world_size)
        self.items, self.shuffle, self.drop_last = items, shuffle, drop_last
        self.seed = positive_int("seed", seed, minimum=0)
        if len(self) == 0:
            raise ValueError(f"items must be at least batch_size = {batch_size} to drop the last, got {len(items)}")
        self._order: tuple[int, NDArray[np.int64]] | None = None

    def __len__(self) -> int:
        full, rest = divmod(len(self.items), self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    def _identity(self) -> dict[str, Any]:
        names = ("batch_size", "shuffle", "seed", "drop_last")
        return {"items": len(self.items), **{name: getattr(self, name) for name in names}}

    def _batch(self, position: int) -> Batch | None:
        everyone = self._epoch_order()[position * self.batch_size :][: self.batch_size]
        own = np.array_split(everyone, self.world_size)[self.rank]
        if len(own) == 0:
            return None
        lengths = self.items.lengths
        # the longest sequence of all processes, so that shapes do not depend on how many there are
        steps = None if lengths is None else int(lengths[everyone].max())
        inputs, targets = self.items.take(own, steps)
        own_lengths = None if lengths is None else torch.from_numpy(lengths[own])
        return Batch(torch.from_numpy(inputs), torch.from_numpy(targets), own_lengths)

    def _epoch_order(self) -> NDArray[np.int64]:
        if self._order is None or self._order[0] != self.epoch:
            order = np.arange(len(self.items))
            if self.shuffle:
                order = np.random.default_rng([self.seed, self.epoch]).permutation(order)
            self._order = self.epoch, order
        return self._order[1]
