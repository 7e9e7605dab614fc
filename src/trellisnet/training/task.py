"""What is learned: a task joins a dataset and a model, and knows the loss of a batch and the metrics of a split."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from torch import Tensor, nn

from trellisnet.core.state import TrellisState
from trellisnet.data.batches import Batch, Batches
from trellisnet.models.pretrained import Pretrained
from trellisnet.training.config import Config
from trellisnet.training.distribution import Workers

Carried = TrellisState | None
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
