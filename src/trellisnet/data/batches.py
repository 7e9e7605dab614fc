"""Batches of a dataset, divided among processes, in an order that can be resumed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trellisnet.core.checks import boolean, positive_int, seed_number
from trellisnet.data.fingerprints import fingerprint

if TYPE_CHECKING:  # the options of a dataset are read without torch, so that `--help` is fast
    import torch
    from torch import Tensor


SORTED = 500  # batches that are sorted together: pairs of equal lengths are rare among fewer


@dataclass(frozen=True)
class Batch:
    """The sequences of one training step.

    Attributes:
        inputs: (B, T) token ids, or (B, T, C) values.
        targets: (B, T) the token after each input; (B,) class labels; (B, D) values; or (B, T, D) values or labels.
        lengths: (B,) length of each sequence, if they differ; the padding after it is zero.
        continues: each row continues the same row of the previous batch, so the state carries over.
    """

    inputs: Tensor
    targets: Tensor
    lengths: Tensor | None = None
    continues: bool = False

    def to(self, device: torch.device | str) -> Batch:
        """Move inputs and targets to a device. The lengths stay on the CPU, because shapes depend on them."""
        return Batch(
            self.inputs.to(device, non_blocking=True),
            self.targets.to(device, non_blocking=True),
            self.lengths,
            self.continues,
        )

    def split(self, parts: int) -> list[Batch]:
        """Split the rows into n smaller batches of nearly equal size."""
        lengths = [None] * parts if self.lengths is None else list(self.lengths.tensor_split(parts))
        rows = zip(self.inputs.tensor_split(parts), self.targets.tensor_split(parts), lengths, strict=True)
        return [Batch(inputs, targets, length, self.continues) for inputs, targets, length in rows]


class Batches(ABC):
    """Iterates over a dataset epoch by epoch.

    A loop over it yields the rest of the current epoch. `state_dict` is the position in whole batches of all processes
    together: a run can resume exactly from it, also with another number of processes.

    Attributes:
        epoch: number of complete epochs.
        position: number of batches of the current epoch that have been yielded.
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
    def count(self, epoch: int) -> int:
        """Number of batches of an epoch, counted from 0."""

    def __len__(self) -> int:
        """Number of batches of the current epoch."""
        return self.count(self.epoch)

    def total(self, epochs: int) -> int:
        """Number of batches of the first n epochs; in most datasets all have the same number."""
        return epochs * self.count(0)

    def __iter__(self) -> Iterator[Batch]:
        while self.position < len(self):
            self.position += 1  # before the yield: a checkpoint saved after this batch must count it
            if (batch := self._batch(self.position - 1)) is not None:
                yield batch
        self.epoch, self.position = self.epoch + 1, 0

    def state_dict(self) -> dict[str, Any]:
        """Return epoch and position, and the settings that they depend on."""
        return {"epoch": self.epoch, "position": self.position, **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to the position of a `state_dict`.

        Raises:
            ValueError: it belongs to other data, another batch size or another order.
        """
        for name, value in self._identity().items():
            if state.get(name) != value:
                raise ValueError(f"the state must be of batches with {name} = {value!r}, got {state.get(name)!r}")
        epoch = positive_int("epoch", state.get("epoch"), minimum=0)
        position = positive_int("position", state.get("position"), minimum=0)
        if position > self.count(epoch):
            raise ValueError(f"position must be at most {self.count(epoch)}, the batches of an epoch, got {position}")
        self.epoch, self.position = epoch, position

    @abstractmethod
    def _identity(self) -> dict[str, Any]:
        """Return the settings that two instances must share to yield the same batches."""

    @abstractmethod
    def _batch(self, position: int) -> Batch | None:
        """Return this process's rows of a batch; None if it has none, because the batch has too few rows."""


class Items(ABC):
    """Sequences with random access.

    Attributes:
        lengths: length of each sequence, or None if all are equal.
        draws: number of random numbers that `vary` needs per sequence; 0: training sees the sequences as they are.
    """

    lengths: NDArray[np.int64] | None = None
    draws: int = 0

    @property
    def sizes(self) -> tuple[NDArray[np.int64], ...]:
        """Sizes (N,), the most important first: shuffled batches are of similar sequences. Default: of any."""
        return ()

    @abstractmethod
    def __len__(self) -> int:
        """Number of sequences."""

    @abstractmethod
    def take(self, indices: NDArray[np.int64], steps: int | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return inputs and targets of some sequences.

        Args:
            indices: (B,), numbers of the sequences.
            steps: for sequences of unequal lengths: pad them with zeros to this length.
        """

    def vary(self, inputs: NDArray[Any], draws: NDArray[np.float64]) -> NDArray[Any]:
        """Return the inputs of some sequences changed at random, for training.

        Args:
            inputs: as `take` returns them.
            draws: (B, `draws`), random numbers from 0 to 1.
        """
        return inputs

    def fingerprint(self) -> str:
        """Return a hash of every byte that `take` reads.

        It covers all attributes, because they are smaller than what they yield: windows overlap, and synthetic
        sequences follow from a seed. Attributes of other types than numbers, texts and arrays are not comparable
        between processes; then all sequences are hashed.
        """
        try:
            stored = fingerprint(*(part for name in sorted(vars(self)) for part in (name, getattr(self, name))))
        except TypeError:
            return fingerprint(*(self._hashed(range(i, i + 1)) for i in range(len(self))))
        return fingerprint(stored, self._hashed(range(min(1, len(self)))))  # the first one: `take` may change

    def _hashed(self, rows: range) -> str:
        indices = np.array(rows, dtype=np.int64)
        steps = None if self.lengths is None or not len(rows) else int(self.lengths[indices].max())
        return fingerprint(*(self.take(indices, steps) if len(rows) else ()))


class ItemBatches(Batches):
    """Batches of sequences, in order or shuffled in every epoch.

    Args:
        items: the sequences.
        batch_size: number of sequences per batch, of all processes together.
        shuffle: shuffle in every epoch, and vary the sequences if they can be varied; both depend on `seed` and the
            number of the epoch only.
        seed: seed of the shuffling.
        drop_last: omit an incomplete last batch. Otherwise the processes divide it as evenly as possible, and a process
            without a sequence of it yields one batch less.
        rank, world_size: this process yields share `rank` of `world_size` of every batch.
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
        self.items = items
        self.shuffle, self.drop_last = boolean("shuffle", shuffle), boolean("drop_last", drop_last)
        self.seed = seed_number("seed", seed)
        if len(self) == 0:
            raise ValueError(f"items must be at least batch_size = {batch_size} to drop the last, got {len(items)}")
        self._order: tuple[int, NDArray[np.int64]] | None = None

    def count(self, epoch: int) -> int:
        full, rest = divmod(len(self.items), self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    def _identity(self) -> dict[str, Any]:
        names = ("batch_size", "shuffle", "seed", "drop_last")
        return {"items": len(self.items), **{name: getattr(self, name) for name in names}}

    def _batch(self, position: int) -> Batch | None:
        import torch  # noqa: PLC0415

        whole = self._epoch_order()[position * self.batch_size :][: self.batch_size]
        own = self._share(whole)
        if len(own) == 0:
            return None
        lengths = self.items.lengths
        # pad to the longest sequence of all processes, so that shapes do not depend on the number of processes
        steps = None if lengths is None else int(lengths[whole].max())
        inputs, targets = self.items.take(own, steps)
        if self.shuffle and self.items.draws:
            # for all processes, so that they do not depend on their number; + 1, because NumPy takes [.., 0] for [..]
            generator = np.random.default_rng([self.seed, self.epoch, position + 1])
            inputs = self.items.vary(inputs, self._share(generator.random((len(whole), self.items.draws))))
        own_lengths = None if lengths is None else torch.from_numpy(lengths[own])
        return Batch(torch.from_numpy(inputs), torch.from_numpy(targets), own_lengths)

    def _share(self, rows: NDArray[Any]) -> NDArray[Any]:
        """This process's share of the rows of a batch."""
        return np.array_split(rows, self.world_size)[self.rank]

    def _epoch_order(self) -> NDArray[np.int64]:
        if self._order is None or self._order[0] != self.epoch:
            order = np.arange(len(self.items))
            if self.shuffle:
                generator = np.random.default_rng([self.seed, self.epoch])
                order = generator.permutation(order)
                if self.items.sizes:
                    order = _by_size(order, self.items.sizes, self.batch_size, generator)
            self._order = self.epoch, order
        return self._order[1]


def _by_size(
    order: NDArray[np.int64], sizes: Sequence[NDArray[np.int64]], batch_size: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Sort each `SORTED` batches of a shuffled order by sizes, then shuffle the whole batches; the rest comes last."""
    full, rest = np.split(order, [len(order) - len(order) % batch_size])
    parts = np.split(full, range(SORTED * batch_size, len(full), SORTED * batch_size))
    batches = np.concatenate([part[np.lexsort([size[part] for size in reversed(sizes)])] for part in parts])
    return np.concatenate([generator.permutation(batches.reshape(-1, batch_size)).reshape(-1), rest])
