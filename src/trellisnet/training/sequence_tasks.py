"""Learning what is to be said of sequences."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping

import numpy as np
from torch import Tensor, nn

from trellisnet.data.batches import Batch, Batches
from trellisnet.data.sequences.data import SequenceData
from trellisnet.models.build import build_classifier, build_language_model, build_regressor
from trellisnet.models.heads import IGNORED
from trellisnet.models.language import LanguageModel
from trellisnet.models.pretrained import Pretrained
from trellisnet.models.sequence import SequenceClassifier, SequenceRegressor
from trellisnet.training.config import TEXT_DEFAULTS, Config
from trellisnet.training.distribution import Workers
from trellisnet.training.task import Carried, Sums, Task


class SequenceTask(Task):
    """Sequences that can be had in any order, by a model with a loss for a whole batch."""

    unit = "sequences"
    summed: tuple[str, ...]  # what `_judge` returns, the same in all processes even if one has no batch

    def __init__(self, config: Config, data: SequenceData, model: Pretrained) -> None:
        for name in TEXT_DEFAULTS:
            if (value := getattr(config.training, name)) is not None:
                raise ValueError(f"training.{name} belongs to text, and {data.name} is none: got {value!r}")
        super().__init__(config, model)
        self.data = data

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
                for name, value in self._judge(batch.to(workers.device), depth).items():
                    sums[name] += value
        return sums

    @abstractmethod
    def _judge(self, batch: Batch, depth: int | None) -> Sums: ...

    def fingerprint(self) -> str:
        digest = hashlib.sha256(f"{self.data.input_size} {self.data.output_size}".encode())
        for items in self.data.splits.values():
            some = np.arange(0, len(items), max(1, len(items) // 8))
            longest = None if items.lengths is None else int(items.lengths[some].max())
            for array in items.take(some, longest):
                digest.update(f"{len(items)}".encode() + array.tobytes())
        return digest.hexdigest()

    def size(self, batch: Batch) -> int:
        return len(batch.inputs)

    @property
    def splits(self) -> list[str]:
        return list(self.data.splits)


class AccuracyTask(SequenceTask):
    """Answers that are right or wrong."""

    metric = "accuracy"
    summed = ("loss", "right", "count")

    def metrics(self, sums: Sums) -> dict[str, float]:
        return {"loss": sums["loss"] / sums["count"], "accuracy": sums["right"] / sums["count"]}


class ClassificationTask(AccuracyTask):
    """One label a sequence."""

    model: SequenceClassifier

    def __init__(self, config: Config, data: SequenceData) -> None:
        model = build_classifier(config.model.body, data.input_size, data.output_size, **config.model.chosen())
        super().__init__(config, data, model)

    def _judge(self, batch: Batch, depth: int | None) -> Sums:
        out = self.model(batch.inputs, batch.targets, lengths=batch.lengths, depth=depth)
        right = out.prediction.argmax(1).eq(batch.targets).sum().item()
        return {"loss": out.loss.item() * len(batch.targets), "right": right, "count": len(batch.targets)}


class RegressionTask(SequenceTask):
    """Numbers of a sequence."""

    metric = "mse"
    summed = ("loss", "error", "count")
    model: SequenceRegressor

    def __init__(self, config: Config, data: SequenceData) -> None:
        model = build_regressor(config.model.body, data.input_size, data.output_size, **config.model.chosen())
        super().__init__(config, data, model)

    def _judge(self, batch: Batch, depth: int | None) -> Sums:
        difference = self.model(batch.inputs, lengths=batch.lengths, depth=depth).prediction - batch.targets
        return {
            "loss": difference.square().sum().item(),
            "error": difference.abs().sum().item(),
            "count": difference.numel(),
        }

    def metrics(self, sums: Sums) -> dict[str, float]:
        return {"mse": sums["loss"] / sums["count"], "mae": sums["error"] / sums["count"]}


class TokenTask(AccuracyTask):
    """An answer at some of the steps of a sequence of tokens, by a language model."""

    model: LanguageModel

    def __init__(self, config: Config, data: SequenceData) -> None:
        options = {"embedding_size": data.input_size, **config.model.chosen()}
        model = build_language_model(config.model.body, vocab_size=max(data.input_size, data.output_size), **options)
        super().__init__(config, data, model)

    def loss(
        self, model: nn.Module, batch: Batch, carried: Carried, depth: int | None
    ) -> tuple[Tensor, Mapping[str, Tensor], Carried]:
        out = model(batch.inputs, batch.targets, depth=depth)
        return out.loss, out.parts, None

    def _judge(self, batch: Batch, depth: int | None) -> Sums:
        log_prob = self.model(batch.inputs, depth=depth, history=self.model.options.history).log_prob
        targets = batch.targets[:, -log_prob.shape[1] :]
        counted = targets != IGNORED
        nll = -log_prob[counted].gather(1, targets[counted].unsqueeze(1)).sum().item()
        right = log_prob.argmax(-1).eq(targets)[counted].sum().item()
        return {"loss": nll, "right": right, "count": int(counted.sum())}
