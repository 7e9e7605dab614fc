"""What is learned: a task joins a dataset and a model, and knows the loss of a batch and the metrics of a split."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
from torch import Tensor, nn

from trellisnet.core.state import TrellisState
from trellisnet.data.batches import Batch, Batches
from trellisnet.data.registry import load
from trellisnet.data.sequences.data import SequenceData
from trellisnet.data.text.data import TextData
from trellisnet.models.heads import IGNORED
from trellisnet.models.language import TrellisLM
from trellisnet.models.pretrained import Pretrained
from trellisnet.models.sequence import TrellisClassifier, TrellisRegressor
from trellisnet.training.config import Config
from trellisnet.training.distribution import Workers
from trellisnet.training.streaming import stream_columns

Carried = TrellisState | None
SAMPLED = 10_000  # tokens of a text that its fingerprint is made of
Sums = dict[str, float]  # additive over batches and processes; metrics are made of them


class Task(ABC):
    """A dataset and a model for it.

    Attributes:
        metric: the name of what validation is judged by; lower is better, except for accuracy.
        unit: what throughput counts.
    """

    metric: str
    unit: str
    model: Pretrained

    def __init__(self, config: Config) -> None:
        self.config, self.training = config, config.training

    @abstractmethod
    def train_batches(self, workers: Workers) -> Batches:
        """The training split, shared among processes."""

    @abstractmethod
    def loss(
        self, model: nn.Module, batch: Batch, carried: Carried, depth: int | None
    ) -> tuple[Tensor, Mapping[str, Tensor], Carried]:
        """The loss of a batch, its parts, and what the next batch goes on from."""

    @abstractmethod
    def evaluate(self, split: str, workers: Workers, evaluation: str | None = None, depth: int | None = None) -> Sums:
        """Sums over this process's share of a split."""

    @abstractmethod
    def metrics(self, sums: Sums) -> dict[str, float]:
        """Metrics of sums over all processes."""

    @abstractmethod
    def size(self, batch: Batch) -> int:
        """How many units a batch has."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Tells whether the data is that of another time."""

    def judged_by(self, metrics: Mapping[str, float]) -> float:
        """The metric as a number of which lower is better."""
        value = metrics[self.metric]
        return -value if self.metric == "accuracy" else value

    def protocol(self, evaluation: str | None = None) -> str:
        """How metrics come about, for people who compare them."""
        return "every sequence of the split"

    @property
    @abstractmethod
    def splits(self) -> list[str]:
        """The splits there are."""


class LanguageTask(Task):
    """Text: the next word at every step, by TrellisLM."""

    unit = "tokens"
    model: TrellisLM

    def __init__(self, config: Config, data: TextData) -> None:
        super().__init__(config)
        self.data = data
        self.metric = "bits" if data.vocabulary.kind == "characters" else "perplexity"
        options = config.model.chosen()
        options.setdefault("embedding_size", config.model.hidden_size)
        self.model = TrellisLM(vocab_size=len(data.vocabulary), vocabulary=data.vocabulary, **options)

    def train_batches(self, workers: Workers) -> Batches:
        return self._windows("train", self.training.batch_size, workers)

    def _windows(self, split: str, batch_size: int, workers: Workers) -> Batches:
        return self.data.batches(
            split, batch_size, self.training.steps, context=self._context(), rank=workers.rank, world_size=workers.count
        )

    def loss(
        self, model: nn.Module, batch: Batch, carried: Carried, depth: int | None
    ) -> tuple[Tensor, Mapping[str, Tensor], Carried]:
        out = model(batch.inputs, batch.targets, carried if batch.continues else None, depth=depth)
        return out.loss, out.parts, out.state

    def evaluate(self, split: str, workers: Workers, evaluation: str | None = None, depth: int | None = None) -> Sums:
        if (evaluation or self.training.evaluation) == "streaming":
            ids = self.data.splits[split]
            columns, window = self.training.evaluation_batch, self.training.steps
            nll, count = stream_columns(self.model, ids, columns, window, workers, depth)
            return {"nll": nll, "count": float(count)}
        sums, carried = {"nll": 0.0, "count": 0.0}, None
        batch_size = self.training.batch_size
        with self.model.reading():
            for batch in self._windows(split, batch_size, workers):
                moved = batch.to(workers.device)
                state = carried if batch.continues else None
                out = self.model(moved.inputs, moved.targets, state, depth=depth, history=self.model.history)
                counted = batch.targets.shape[0] * (batch.targets.shape[1] - self._context())
                sums["nll"] += out.loss.item() * counted
                sums["count"] += counted
                carried = out.state
        return sums

    def _context(self) -> int:
        return self.model.horizon if self.model.history == "discard" else 0

    def metrics(self, sums: Sums) -> dict[str, float]:
        loss = sums["nll"] / sums["count"]
        return {"loss": loss, "perplexity": _exp(loss), "bits": loss / math.log(2)}

    def size(self, batch: Batch) -> int:
        return batch.targets.shape[0] * (batch.targets.shape[1] - self._context())

    def protocol(self, evaluation: str | None = None) -> str:
        if (evaluation or self.training.evaluation) == "streaming":
            return "exact streaming: every token once, with its full receptive field"
        how = {"carry": "exact history", "repackage": "repackaged history"}.get(self.model.history)
        how = how or f"the first {self.model.horizon} steps of each as context"
        columns = self.training.batch_size
        return f"windows of {self.training.steps} in {columns} columns, {how} (the authors' way)"

    def fingerprint(self) -> str:
        digest = hashlib.sha256(self.data.vocabulary.to_json().encode())
        for ids in self.data.splits.values():
            digest.update(f"{len(ids)}".encode())
            digest.update(ids[:: max(1, len(ids) // SAMPLED)].tobytes())  # all of it would take long
        return digest.hexdigest()

    @property
    def splits(self) -> list[str]:
        return list(self.data.splits)


class SequenceTask(Task):
    """Sequences that can be had in any order, by a model with a loss for a whole batch."""

    unit = "sequences"
    summed: tuple[str, ...]  # what `_judge` returns, the same in all processes even if one has no batch

    def __init__(self, config: Config, data: SequenceData) -> None:
        super().__init__(config)
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


class ClassificationTask(SequenceTask):
    """One label a sequence, by TrellisClassifier."""

    metric = "accuracy"
    summed = ("loss", "right", "count")
    model: TrellisClassifier

    def __init__(self, config: Config, data: SequenceData) -> None:
        super().__init__(config, data)
        self.model = TrellisClassifier(data.input_size, num_classes=data.output_size, **config.model.chosen())

    def _judge(self, batch: Batch, depth: int | None) -> Sums:
        out = self.model(batch.inputs, batch.targets, lengths=batch.lengths, depth=depth)
        right = out.prediction.argmax(1).eq(batch.targets).sum().item()
        return {"loss": out.loss.item() * len(batch.targets), "right": right, "count": len(batch.targets)}

    def metrics(self, sums: Sums) -> dict[str, float]:
        return {"loss": sums["loss"] / sums["count"], "accuracy": sums["right"] / sums["count"]}


class RegressionTask(SequenceTask):
    """Numbers of a sequence, by TrellisRegressor."""

    metric = "mse"
    summed = ("loss", "error", "count")
    model: TrellisRegressor

    def __init__(self, config: Config, data: SequenceData) -> None:
        super().__init__(config, data)
        self.model = TrellisRegressor(data.input_size, num_values=data.output_size, **config.model.chosen())

    def _judge(self, batch: Batch, depth: int | None) -> Sums:
        difference = self.model(batch.inputs, lengths=batch.lengths, depth=depth).prediction - batch.targets
        return {
            "loss": difference.square().sum().item(),
            "error": difference.abs().sum().item(),
            "count": difference.numel(),
        }

    def metrics(self, sums: Sums) -> dict[str, float]:
        return {"mse": sums["loss"] / sums["count"], "mae": sums["error"] / sums["count"]}


class TokenTask(SequenceTask):
    """An answer at some of the steps of a sequence of tokens, by TrellisLM."""

    metric = "accuracy"
    summed = ("loss", "right", "count")
    model: TrellisLM

    def __init__(self, config: Config, data: SequenceData) -> None:
        super().__init__(config, data)
        options = config.model.chosen()
        options.setdefault("embedding_size", data.input_size)
        self.model = TrellisLM(vocab_size=max(data.input_size, data.output_size), **options)

    def loss(
        self, model: nn.Module, batch: Batch, carried: Carried, depth: int | None
    ) -> tuple[Tensor, Mapping[str, Tensor], Carried]:
        out = model(batch.inputs, batch.targets, depth=depth)
        return out.loss, out.parts, None

    def _judge(self, batch: Batch, depth: int | None) -> Sums:
        log_prob = self.model(batch.inputs, depth=depth, history=self.model.history).log_prob
        targets = batch.targets[:, -log_prob.shape[1] :]
        counted = targets != IGNORED
        nll = -log_prob[counted].gather(1, targets[counted].unsqueeze(1)).sum().item()
        right = log_prob.argmax(-1).eq(targets)[counted].sum().item()
        return {"loss": nll, "right": right, "count": int(counted.sum())}

    def metrics(self, sums: Sums) -> dict[str, float]:
        return {"loss": sums["loss"] / sums["count"], "accuracy": sums["right"] / sums["count"]}


TASKS: dict[str, type[ClassificationTask | RegressionTask | TokenTask]] = {
    "classification": ClassificationTask,
    "regression": RegressionTask,
    "tokens": TokenTask,
}


def make_task(config: Config) -> Task:
    """Load the data of a configuration and build its model."""
    data = load(config.data.name, root=config.data.root, **config.data.options)
    return LanguageTask(config, data) if isinstance(data, TextData) else TASKS[data.task](config, data)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
