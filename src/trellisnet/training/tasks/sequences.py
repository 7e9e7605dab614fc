"""The base class of tasks on sequences."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trellisnet.data.batches import Batch, Batches
from trellisnet.data.files.columns import Columns
from trellisnet.data.sequences.data import SequenceData
from trellisnet.data.sequences.given import padded
from trellisnet.data.sequences.inputs import read_inputs
from trellisnet.models.body import nests_depths
from trellisnet.models.pretrained import Pretrained, reading
from trellisnet.models.sequence_model import SequenceModel
from trellisnet.training.config import TEXT_DEFAULTS, Config
from trellisnet.training.distribution import Workers
from trellisnet.training.metrics import LOSS
from trellisnet.training.tasks.base import Carried, Sums, Task


class SequenceTask(Task):
    """A task on independent sequences, in any order.

    The model is one of ours or the user's own module. It is called as `model(inputs, targets)`, or for unequal lengths
    as `model(inputs, targets, lengths=lengths)`. It returns an object with a scalar `loss`, and optionally
    `prediction` (logits or values, for the metrics) and `parts` (the terms of the loss, with the same names in every
    call).

    Attributes:
        takes_modules: whether the user's own modules are supported.
        summed: the keys of the result of `judge`; needed if a process has no batch. By default each is a metric, with
            its sum over the items of a batch, and `count` is the number of items.
        predicts: whether the model returns predictions; otherwise the only metric is the loss.
    """

    unit = "sequences"
    data: SequenceData
    summed: tuple[str, ...]
    takes_modules: ClassVar[bool] = True
    predicts = True

    def _with_defaults(self, config: Config) -> Config:
        for name in TEXT_DEFAULTS:
            if (value := getattr(config.training, name)) is not None:
                raise ValueError(f"training.{name} belongs to text, and {self.data.name} is not text: got {value!r}")
        return config

    def check_model(self) -> None:
        name, kind = self.data.name, type(self.model).__name__
        if self.takes_modules and not isinstance(self.model, Pretrained):
            self._try_model()
            return
        if not isinstance(self.model, self.kind):
            raise TypeError(f"model must be a {self.kind.__name__} for the {self.data.task} of {name}, got {kind}")
        for size, (got, expected) in self.sizes().items():
            if got != expected:
                raise ValueError(f"model must have {size} = {expected} for the data {name}, got {got}")
        if self.data.ahead and cast("SequenceModel", self.model).options.bidirectional:
            raise ValueError(f"bidirectional must be false for the data {name}, whose targets are later inputs")

    def _try_model(self) -> None:
        """Call the user's module on two sequences, to raise errors before training starts."""
        name = f"model {type(self.model).__name__}"
        if not isinstance(self.model, nn.Module):
            raise TypeError(f"model must be an nn.Module, got {type(self.model).__name__}")
        batch = next(iter(self.data.batches(self.valid_split, 2))).to(self.device)
        try:
            with reading(self.model):
                out = self.call(self.model, batch)
        except TypeError as error:
            lengths = "" if batch.lengths is None else ", lengths=lengths"
            raise TypeError(f"{name} must be callable as model(inputs, targets{lengths}): {error}") from error
        loss, prediction = getattr(out, "loss", None), getattr(out, "prediction", None)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise TypeError(f"{name} must return an object with a scalar tensor `loss`, got {type(out).__name__}")
        if prediction is None:
            self.predicts, self.metric, self.others = False, LOSS, ()
        elif tuple(prediction.shape) != (expected := self.prediction_shape(batch)):
            raise ValueError(f"{name} must give predictions of shape {expected}, got {tuple(prediction.shape)}")

    @abstractmethod
    def sizes(self) -> dict[str, tuple[int, int]]:
        """Sizes that must agree, by name: (of the model, of the data)."""

    def prediction_shape(self, batch: Batch) -> tuple[int, ...]:
        """The expected shape of the predictions for a batch."""
        return tuple(batch.targets.shape)

    def train_batches(self, workers: Workers) -> Batches:
        training = self.training
        return self.data.batches(
            "train",
            training.batch_size,
            shuffle=True,
            seed=training.seed,
            drop_last=True,  # so that every process has a part of every batch
            rank=workers.rank,
            world_size=workers.count,
        )

    def call(self, model: nn.Module, batch: Batch, depth: int | None = None) -> Any:
        """The model's output for a batch. Arguments that are None are omitted: a module need not accept them."""
        options = {"lengths": batch.lengths, "depth": depth}
        return model(batch.inputs, batch.targets, **{name: v for name, v in options.items() if v is not None})

    def loss(
        self, model: nn.Module, batch: Batch, carried: Carried, depth: int | None
    ) -> tuple[Tensor, Mapping[str, Tensor], Carried]:
        out = self.call(model, batch, depth)
        return out.loss, getattr(out, "parts", {}), None

    def evaluate(
        self, split: str, workers: Workers, evaluation: str | None = None, depths: Sequence[int | None] = (None,)
    ) -> list[Sums]:
        size = -(-self.training.evaluation_batch // workers.count) * workers.count
        batches = self.data.batches(split, size, rank=workers.rank, world_size=workers.count)
        sums = [dict.fromkeys(self.summed if self.predicts else ("loss", "count"), 0.0) for _ in depths]
        with reading(self.model):
            for batch in batches:
                moved = batch.to(workers.device)
                for total, out in zip(sums, self.outputs(moved, depths), strict=True):
                    judged = self.judge(moved, out) if self.predicts else self._judge_loss(moved, out)
                    for name, value in judged.items():
                        total[name] += value
        return sums

    def outputs(self, batch: Batch, depths: Sequence[int | None]) -> Sequence[Any]:
        """The model's outputs for a batch at each depth, in one pass if the body allows it."""
        if len(depths) > 1 and nests_depths(self.model.net):
            found: Sequence[Any] = self.model.at_depths(depths, batch.inputs, batch.targets, batch.lengths)
            return found
        return [self.call(self.model, batch, depth) for depth in depths]

    @abstractmethod
    def judge(self, batch: Batch, out: Any) -> Sums:
        """Sums over the items of a batch, from the model's output for it, with the keys `summed`."""

    def _judge_loss(self, batch: Batch, out: Any) -> Sums:
        count = len(batch.inputs)
        return {"loss": out.loss.item() * count, "count": count}

    def metrics(self, sums: Sums) -> dict[str, float]:
        return self.measure(sums) if self.predicts else {"loss": sums["loss"] / sums["count"]}

    def measure(self, sums: Sums) -> dict[str, float]:
        """The metrics, from the sums of `judge` over all batches: by default the mean of each."""
        return {name: value / sums["count"] for name, value in sums.items() if name != "count"}

    def predictions(self, batch: Batch) -> Tensor:
        """The model's predictions for a batch, on the CPU."""
        with reading(self.model):
            prediction: Tensor = self.call(self.model, batch.to(self.device)).prediction
            return prediction.cpu()

    @classmethod
    def predict(
        cls, model: Any, facts: Mapping[str, Any], inputs: Any, batch_size: int, per: str | None = None
    ) -> Columns:
        return cls.columns(*cls.answers(model, facts, inputs, batch_size, per))

    @classmethod
    def answers(
        cls, model: Any, facts: Mapping[str, Any], inputs: Any, batch_size: int, per: str | None
    ) -> tuple[SequenceData, list[str], list[NDArray[Any]]]:
        """What was trained on, the names of the sequences of `inputs`, and the model's answer to each."""
        if per is not None:
            raise ValueError(f"per belongs to language models: got {per!r} for {facts['task']}")
        data = SequenceData.from_facts(facts["data"])
        names, rows = cls.read_inputs(data, inputs)
        outputs: list[NDArray[Any]] = []
        device = next(model.parameters()).device
        for start in range(0, len(rows), batch_size):
            some = rows[start : start + batch_size]
            lengths = torch.tensor([len(row) for row in some])
            uneven = {} if (lengths == lengths[0]).all() else {"lengths": lengths}
            with reading(model):
                found = cls.answer(model, torch.from_numpy(padded(some)).to(device), uneven).cpu().numpy()
            per_step = found.ndim == 3
            outputs += [each[:length] if per_step else each for each, length in zip(found, lengths, strict=True)]
        return data, names, outputs

    @classmethod
    def read_inputs(cls, data: SequenceData, inputs: Any) -> tuple[list[str], Sequence[NDArray[Any]]]:
        """The names of the sequences, and the sequences (T, C) in the form of the model's input."""
        return read_inputs(data, inputs)

    @classmethod
    def answer(cls, model: Any, inputs: Tensor, lengths: Mapping[str, Tensor]) -> Tensor:
        """The model's predictions for a batch without targets."""
        prediction: Tensor = model(inputs, None, **lengths).prediction
        return prediction

    @classmethod
    @abstractmethod
    def columns(cls, data: SequenceData, names: Sequence[str], outputs: Sequence[NDArray[Any]]) -> Columns:
        """Convert the outputs for the named sequences to columns."""

    def protocol(self, evaluation: str | None = None) -> str:
        if evaluation is not None:
            raise ValueError(f"evaluation belongs to language models: got {evaluation!r} for {self.data.task}")
        return "every sequence of the split"

    def size(self, batch: Batch) -> int:
        return len(batch.inputs)

    def part_fingerprints(self) -> dict[str, str]:
        return {split: items.fingerprint() for split, items in self.data.splits.items()}


def step_columns(names: Sequence[str], rows: Sequence[NDArray[Any]]) -> Columns:
    """The columns `series` and `step` of a table with one row per step of each sequence; steps count from 1."""
    steps = [(name, step + 1) for name, row in zip(names, rows, strict=True) for step in range(len(row))]
    return {"series": [name for name, _ in steps], "step": [step for _, step in steps]}


def inside(values: Tensor, batch: Batch) -> Tensor:
    """The rows (N, D) of values (B, T, D) at the steps of a batch that are not padding."""
    if batch.lengths is None:
        return values.flatten(0, 1)
    return values[torch.arange(values.shape[1]) < batch.lengths[:, None]]
