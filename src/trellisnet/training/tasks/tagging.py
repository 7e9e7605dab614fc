"""Tagging: one class per step of a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from trellisnet.data.batches import Batch
from trellisnet.data.files.columns import Columns
from trellisnet.data.sequences.data import SequenceData
from trellisnet.models.build import build_tagger
from trellisnet.models.sequence import SequenceTagger
from trellisnet.training.config import ModelConfig
from trellisnet.training.metrics import ACCURACY, LOSS, MACRO_F1
from trellisnet.training.tasks.base import Sums
from trellisnet.training.tasks.classification import TaskOfClasses, confusion, label_columns
from trellisnet.training.tasks.sequences import inside, step_columns


class TaggingTask(TaskOfClasses):
    """One class per step. Metrics count steps, not sequences.

    `macro_f1` is the mean over the classes that occur in targets or predictions of 2 n / (p + t), with n steps of the
    class that are right, p predictions and t targets.
    """

    kind = SequenceTagger
    metric, others = ACCURACY, (MACRO_F1, LOSS)
    model: SequenceTagger

    def check_model(self) -> None:
        classes = range(self.data.output_size)
        self.summed = ("loss", "count", *(f"{what} {i}" for what in ("right", "all") for i in classes))
        super().check_model()

    def build_model(self, chosen: ModelConfig) -> SequenceTagger:
        data = self.data
        return build_tagger(chosen.body, data.input_size, data.output_size, **chosen.chosen())

    def prediction_shape(self, batch: Batch) -> tuple[int, ...]:
        return *batch.targets.shape, self.data.output_size

    def judge(self, batch: Batch, out: Any) -> Sums:
        logits, targets = inside(out.prediction, batch), inside(batch.targets, batch)
        counts = confusion(logits, targets)
        right, all_ = counts.diagonal().tolist(), (counts.sum(0) + counts.sum(1)).tolist()
        return {
            "loss": F.cross_entropy(logits, targets, reduction="sum").item(),
            "count": len(targets),
            **{f"right {i}": float(n) for i, n in enumerate(right)},
            **{f"all {i}": float(n) for i, n in enumerate(all_)},
        }

    def measure(self, sums: Sums) -> dict[str, float]:
        pairs = [(sums[f"right {i}"], sums[f"all {i}"]) for i in range(self.data.output_size)]
        shares = [2 * right / both for right, both in pairs if both]
        return {
            "accuracy": sum(right for right, _ in pairs) / sums["count"],
            "macro_f1": sum(shares) / len(shares),
            "loss": sums["loss"] / sums["count"],
        }

    def confusion(self, prediction: Tensor, batch: Batch) -> Tensor:
        return confusion(inside(prediction, batch), inside(batch.targets, batch))

    def protocol(self, evaluation: str | None = None) -> str:
        return f"every step of {super().protocol(evaluation)}"

    @classmethod
    def columns(cls, data: SequenceData, names: Sequence[str], outputs: Sequence[NDArray[Any]]) -> Columns:
        """One row per step: its label, and the probabilities of all labels."""
        return {**step_columns(names, outputs), **label_columns(data, np.concatenate(outputs))}
