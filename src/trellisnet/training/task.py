"""What is learned: a task joins a dataset and a model, and knows the loss of a batch and the metrics of a split."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields, replace

from torch import Tensor, nn

from trellisnet.data.batches import Batch, Batches
from trellisnet.models.bodies import options_of
from trellisnet.models.body import State
from trellisnet.models.pretrained import Pretrained
from trellisnet.training.config import Config, ModelConfig
from trellisnet.training.distribution import Workers

Carried = State  # what the next batch goes on from
Sums = dict[str, float]  # additive over batches and processes; metrics are made of them


class Task(ABC):
    """A dataset and a model for it.

    Args:
        config: what was asked for.
        model: built from it.

    Attributes:
        config: the same with the model's defaults in the places of what was not set.
        metric: the name of what validation is judged by; lower is better, except for accuracy.
        unit: what throughput counts.
    """

    metric: str
    unit: str
    model: Pretrained

    def __init__(self, config: Config, model: Pretrained) -> None:
        self.config = replace(config, model=_resolved(config.model, model))
        self.training, self.model = self.config.training, model

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


def _resolved(chosen: ModelConfig, model: Pretrained) -> ModelConfig:
    """With the defaults of the model and of its net; None stays what is no option of it or follows from others."""
    known = {**model.config, **options_of(model.net)}
    known = {name: list(value) if isinstance(value, tuple) else value for name, value in known.items()}
    known |= {"cell": model.config.get("cell"), "body": chosen.body}
    return replace(
        chosen, **{f.name: known[f.name] for f in fields(chosen) if f.name in known and known[f.name] is not None}
    )
