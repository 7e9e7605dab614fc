"""What the tasks on sequences have in common."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping

import numpy as np
from torch import Tensor, nn

from trellisnet.data.batches import Batch, Batches
from trellisnet.data.sequences.data import SequenceData
from trellisnet.models.pretrained import Pretrained
from trellisnet.training.config import TEXT_DEFAULTS, Config
from trellisnet.training.distribution import Workers
from trellisnet.training.tasks.base import Carried, Sums, Task


class SequenceTask(Task):
    """Sequences that can be taken in any order, by a model with a loss for a whole batch.

    Attributes:
        summed: the names of what `judge` returns, the same in all processes even if one has no batch.
    """

    unit = "sequences"
    data: SequenceData
    model: Pretrained
    summed: tuple[str, ...]

    def _with_defaults(self, config: Config) -> Config:
        for name in TEXT_DEFAULTS:
            if (value := getattr(config.training, name)) is not None:
                raise ValueError(f"training.{name} belongs to text, and {self.data.name} is none: got {value!r}")
        return config

    def check_model(self) -> None:
        name = self.data.name
        if not isinstance(self.model, self.kind):
            kind = type(self.model).__name__
            raise TypeError(f"model must be a {self.kind.__name__} for the {self.data.task} of {name}, got {kind}")
        for size, (got, expected) in self.sizes().items():
            if got != expected:
                raise ValueError(f"model must have {size} = {expected} for the data {name}, got {got}")

    @abstractmethod
    def sizes(self) -> dict[str, tuple[int, int]]:
        """What must agree, by name: of the model, of the data."""

    def train_batches(self, workers: Workers) -> Batches:
        training = self.training
        return self.data.batches(
            "train",
            training.batch_size,
            shuffle=True,
            seed=training.seed,
            drop_last=True,  # every process has a part in every step
            rank=workers.rank,
            world_size=workers.count,
        )

    def loss(
        self, model: nn.Module, batch: Batch, carried: Carried, depth: int | None
    ) -> tuple[Tensor, Mapping[str, Tensor], Carried]:
        out = model(batch.inputs, batch.targets, lengths=batch.lengths, depth=depth)
        return out.loss, out.parts, None

    def evaluate(self, split: str, workers: Workers, evaluation: str | None = None, depth: int | None = None) -> Sums:
        size = -(-self.training.evaluation_batch // workers.count) * workers.count
        batches = self.data.batches(split, size, rank=workers.rank, world_size=workers.count)
        sums = dict.fromkeys(self.summed, 0.0)
        with self.model.reading():
            for batch in batches:
                for name, value in self.judge(batch.to(workers.device), depth).items():
                    sums[name] += value
        return sums

    @abstractmethod
    def judge(self, batch: Batch, depth: int | None) -> Sums:
        """Sums over a batch, by the names of `summed`."""

    def protocol(self, evaluation: str | None = None) -> str:
        if evaluation is not None:
            raise ValueError(f"evaluation belongs to language models: got {evaluation!r} for {self.data.task}")
        return "every sequence of the split"

    def size(self, batch: Batch) -> int:
        return len(batch.inputs)

    def fingerprint(self) -> str:
        digest = hashlib.sha256(f"{self.data.input_size} {self.data.output_size}".encode())
        for items in self.data.splits.values():
            some = np.arange(0, len(items), max(1, len(items) // 8))
            longest = None if items.lengths is None else int(items.lengths[some].max())
            for array in items.take(some, longest):
                digest.update(f"{len(items)}".encode() + array.tobytes())
        return digest.hexdigest()
