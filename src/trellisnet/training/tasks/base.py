"""The base class of tasks: a dataset and a model, with the loss of a batch and the metrics of a split."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from trellisnet.core.checks import layer_count
from trellisnet.core.forms import counting_iterations
from trellisnet.data.batches import Batch, Batches
from trellisnet.data.files.columns import Columns
from trellisnet.data.fingerprints import changes, described_change, fact_fingerprints
from trellisnet.models.bodies import name_of, options_of
from trellisnet.models.body import State, accepts
from trellisnet.models.pretrained import Pretrained
from trellisnet.models.sizing import physical_memory, width_for
from trellisnet.training.config import Config, GivenModel, ModelConfig
from trellisnet.training.distribution import Workers
from trellisnet.training.metrics import ITERATIONS, MOST_ITERATIONS, Metric

Carried = State  # the state that is carried to the next batch
Sums = dict[str, float]  # additive over batches and processes; metrics are computed from them


class Task(ABC):
    """A dataset and a model for it.

    Args:
        config: the configuration of the experiment.
        data: the dataset.
        model: default: built from the configuration.

    Attributes:
        config: the configuration, with defaults for the options of the model that were not set.
        given: whether the model was passed as an argument.
        kind: the base class of the models of this task.
        unit: unit of throughput.
        metric: the metric that selects the best epoch.
        others: further metrics that are reported.

    Raises:
        ValueError, TypeError: if the configuration, the data and the model do not fit together.
    """

    kind: ClassVar[type[Pretrained]]
    unit: ClassVar[str]
    metric: Metric
    others: tuple[Metric, ...]
    model: Any

    def __init__(self, config: Config, data: Any, model: nn.Module | None = None) -> None:
        self.data, self.given = data, model is not None
        if not {"valid", "test"} & set(self.splits):
            raise ValueError(f"{data.name} must have a split 'valid' or 'test' to choose the best epoch by")
        self.config = self._with_defaults(config)
        if model is None:
            self.config = replace(self.config, model=self._with_width(self.config.model))
            self._check_memory()
        self.model = self.build_model(self.config.model) if model is None else model
        self.check_model()
        self._check_depths("training.depths", self.config.training.depths)
        self.config = replace(self.config, model=resolved(self.config.model, self.model))
        self.training = self.config.training

    def _check_depths(self, name: str, depths: Sequence[Any]) -> None:
        chooses = isinstance(self.model, Pretrained)
        if depths and not (chooses and accepts(self.model.net, "depth")):
            kind = type(self.model.net if chooses else self.model).__name__
            raise ValueError(f"{name} needs a body with a depth of each call: got {depths} and {kind}")

    def _with_defaults(self, config: Config) -> Config:
        """The configuration with the defaults of the task; a ValueError for options of other tasks."""
        return config

    def _with_width(self, chosen: ModelConfig) -> ModelConfig:
        """The model's configuration with the width that `parameters` asks for."""
        if chosen.parameters is None:
            return chosen
        try:
            width = width_for(
                lambda width: self.build_model(chosen.changed(hidden_size=width, parameters=None)), chosen.parameters
            )
        except (TypeError, ValueError) as error:
            raise type(error)(f"model.{error}") from None
        return chosen.changed(hidden_size=width, parameters=None)

    def _check_memory(self) -> None:
        """Raise a MemoryError if the model does not fit into the machine; it is built on `meta`, without memory."""
        with torch.device("meta"):
            count = sum(each.numel() for each in self.build_model(self.config.model).parameters())
        wanted, there = count * torch.get_default_dtype().itemsize, physical_memory()
        if wanted > there:
            raise MemoryError(
                f"a model of {count:,} parameters needs {wanted / 2**30:,.0f} GB, this machine has "
                f"{there / 2**30:,.0f} GB: choose a smaller model.hidden_size or model.num_layers"
            )

    @abstractmethod
    def build_model(self, chosen: ModelConfig) -> nn.Module:
        """Build a model of the configuration's task, with the sizes of the data."""

    @abstractmethod
    def check_model(self) -> None:
        """Raise an error if the model does not fit the data."""

    @abstractmethod
    def train_batches(self, workers: Workers) -> Batches:
        """This process's share of the training batches."""

    @abstractmethod
    def loss(
        self, model: nn.Module, batch: Batch, carried: Carried, depth: int | None
    ) -> tuple[Tensor, Mapping[str, Tensor], Carried]:
        """The loss of a batch, its parts by name, and the state that is carried to the next batch."""

    @abstractmethod
    def evaluate(
        self, split: str, workers: Workers, evaluation: str | None = None, depths: Sequence[int | None] = (None,)
    ) -> list[Sums]:
        """Sums over this process's share of a split, at each depth; None is the model's own."""

    @abstractmethod
    def metrics(self, sums: Sums) -> dict[str, float]:
        """The metrics, from sums over all processes."""

    @abstractmethod
    def size(self, batch: Batch) -> int:
        """The number of units in a batch."""

    def rate_factor(self, batch: Batch) -> float:
        """What the learning rate of the training step of a batch is multiplied by."""
        return 1.0

    @cached_property
    def fingerprint(self) -> dict[str, str]:
        """Hashes of the data by part: splits, scales, labels and other facts. They cover every byte."""
        return {**self.part_fingerprints(), **fact_fingerprints(self.data.facts())}

    @abstractmethod
    def part_fingerprints(self) -> dict[str, str]:
        """A hash of each part of the data that is not one of its facts."""

    def check_data(self, before: Any, facts: Mapping[str, Any] | None, where: str) -> None:
        """Raise a ValueError that names what has changed, unless the data is that of an earlier fingerprint.

        Args:
            before: the earlier fingerprint; those of earlier versions, which were of samples, are not compared.
            facts: the earlier facts, to show what they were.
            where: the beginning of the message.
        """
        if not isinstance(before, dict):
            return
        changed = changes(before, self.fingerprint)
        if changed:
            known, now = facts or {}, self.data.facts()
            told = [described_change(name, known.get(name), now.get(name)) for name in changed]
            raise ValueError(f"{where}: {'; '.join(told)}")

    @abstractmethod
    def protocol(self, evaluation: str | None = None) -> str:
        """A description of how the metrics are computed; a ValueError if `evaluation` does not apply to the task."""

    def shown(self) -> dict[str, Any]:
        """Samples or predictions of the trained model for the report, by section; empty by default."""
        return {}

    def naive(self, split: str) -> dict[str, dict[str, float]]:
        """Metrics of forecasts that need no model, by name, to compare with; empty by default."""
        return {}

    def facts(self) -> dict[str, Any]:
        """The content of task.json: what reports and predictions need to know about the run."""
        return {
            "task": self.data.task,
            "model": type(self.model).__name__,
            "given": self.given,
            "fingerprint": self.fingerprint,
            "data": self.data.facts(),
            "metric": self.metric.name,
            "metrics": [asdict(metric) for metric in (self.metric, *self.others)],
        }

    @classmethod
    @abstractmethod
    def predict(
        cls, model: Any, facts: Mapping[str, Any], inputs: Any, batch_size: int, per: str | None = None
    ) -> Columns:
        """Predictions of a model for new data, as `trellisnet.predict` returns them; `facts` are those of its run."""

    def evaluate_alone(self, split: str, evaluation: str | None = None) -> dict[str, float]:
        """Metrics of a split, computed in this process only."""
        return self.measured(split, Workers(device=self.device), evaluation)[0]

    def measured(
        self, split: str, workers: Workers, evaluation: str | None = None, depths: Sequence[int | None] = (None,)
    ) -> list[dict[str, float]]:
        """The metrics of a split over all processes, at each depth; None is the model's own.

        Of a model that iterates until it converges, also the mean and the maximum of the iterations per call.
        """
        with counting_iterations() as counts:
            found = [self.metrics(workers.sum(sums)) for sums in self.evaluate(split, workers, evaluation, depths)]
        if any(getattr(module, "tolerance", None) is not None for module in self.model.modules()):
            counts = [count for each in workers.broadcast(workers.gather(counts)) for count in each]
            for metrics in found if counts else ():
                metrics |= {ITERATIONS: sum(counts) / len(counts), MOST_ITERATIONS: float(max(counts))}
        return found

    def evaluate_depths(
        self, split: str, depths: Sequence[int], evaluation: str | None = None, workers: Workers | None = None
    ) -> dict[int, dict[str, float]]:
        """Metrics of a split at each depth, in one pass where the body allows it.

        Args:
            split: name of the split.
            depths: numbers of layers.
            evaluation: as for `evaluate`.
            workers: the processes that share the work; default this one only.

        Raises:
            ValueError, TypeError: if a depth is not a positive integer, or the body has no depth of each call.
        """
        self._check_depths("depths", depths)
        chosen = list(dict.fromkeys(layer_count("depths", depth) for depth in depths))
        team = Workers(device=self.device) if workers is None else workers
        return dict(zip(chosen, self.measured(split, team, evaluation, chosen), strict=True))

    def evaluate_adapting(
        self, split: str, limit: int | None = None, **adaptation: Any
    ) -> tuple[dict[str, float], str]:
        """Metrics of a split with a cache or dynamic evaluation, and their protocol; `limit` tokens at most."""
        raise ValueError(f"a continuous cache and dynamic evaluation belong to language models, not {self.data.task}")

    def judged_by(self, metrics: Mapping[str, float]) -> float:
        """The score of validation metrics, lower is better."""
        return self.metric.judged(metrics[self.metric.name])

    @property
    def splits(self) -> list[str]:
        """The names of the splits."""
        return list(self.data.splits)

    @property
    def valid_split(self) -> str:
        """The split that selects the best epoch: the test split if there is no validation split."""
        return "valid" if "valid" in self.splits else self.splits[-1]

    @property
    def final_splits(self) -> list[str]:
        """The splits on which the best model is evaluated at the end."""
        others = [split for split in self.splits if split != "train"]
        return others if self.training.test else [self.valid_split]

    @property
    def shown_split(self) -> str:
        """The split whose predictions the report shows."""
        return "test" if "test" in self.final_splits else self.valid_split

    @property
    def device(self) -> Any:
        """The device of the model."""
        return next(self.model.parameters()).device

    @property
    def num_parameters(self) -> int:
        """The number of parameters; tied ones count once."""
        return sum(parameter.numel() for parameter in self.model.parameters())


def described_model(model: nn.Module) -> GivenModel:
    """The entry in the configuration for a model that was passed from Python."""
    if not isinstance(model, Pretrained):
        return GivenModel(body=type(model).__name__, options={})
    options = {name: value for name, value in model.config.items() if name != "body"}
    plain = json.loads(json.dumps({**options_of(model.net), **options}, default=lambda value: type(value).__name__))
    return GivenModel(body=name_of(model.net) or type(model.net).__name__, options=plain)


def resolved(chosen: ModelConfig, model: nn.Module) -> ModelConfig:
    """The model's configuration with all defaults of the model and its body; None means derived from others."""
    if isinstance(chosen, GivenModel) or not isinstance(model, Pretrained):
        return chosen
    known = {**model.config, **options_of(model.net)}
    known = {name: list(value) if isinstance(value, tuple) else value for name, value in known.items()}
    cell = model.config.get("cell")
    known["cell"] = cell if cell is None or isinstance(cell, str) else type(cell).__name__
    known.pop("body", None)  # the configuration has its name
    return replace(
        chosen, **{f.name: known[f.name] for f in fields(chosen) if f.name in known and known[f.name] is not None}
    )
