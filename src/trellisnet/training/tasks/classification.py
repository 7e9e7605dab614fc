"""Classification: one label per sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trellisnet.data.batches import Batch
from trellisnet.data.files.columns import Columns
from trellisnet.data.sequences.data import SequenceData
from trellisnet.models.build import build_classifier
from trellisnet.models.sequence import ModelOfClasses, SequenceClassifier
from trellisnet.training.config import ModelConfig
from trellisnet.training.metrics import ACCURACY, LOSS
from trellisnet.training.tasks.base import Sums
from trellisnet.training.tasks.sequences import SequenceTask


class TaskOfClasses(SequenceTask):
    """What tasks of one class have in common, whether it is that of a sequence or of a step."""

    model: ModelOfClasses

    def sizes(self) -> dict[str, tuple[int, int]]:
        return {
            "input_size": (self.model.net.input_size, self.data.input_size),
            "num_classes": (self.model.num_classes, self.data.output_size),
        }

    def confusion(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Counts (labels, labels) of a batch: a row per target, a column per prediction."""
        return confusion(prediction, batch.targets)

    def shown(self) -> dict[str, Any]:
        """The confusion matrix."""
        if not self.predicts:
            return {}
        counts = torch.zeros(self.data.output_size, self.data.output_size, dtype=torch.int64)
        for batch in self.data.batches(self.shown_split, self.training.evaluation_batch):
            counts += self.confusion(self.predictions(batch), batch)
        return {"confusion": {"labels": label_names(self.data), "counts": counts.tolist()}}


class ClassificationTask(TaskOfClasses):
    """One label per sequence."""

    kind = SequenceClassifier
    metric, others = ACCURACY, (LOSS,)
    summed = ("loss", "accuracy", "count")
    model: SequenceClassifier

    def build_model(self, chosen: ModelConfig) -> SequenceClassifier:
        data = self.data
        return build_classifier(chosen.body, data.input_size, data.output_size, **chosen.chosen())

    def prediction_shape(self, batch: Batch) -> tuple[int, ...]:
        return len(batch.inputs), self.data.output_size

    def judge(self, batch: Batch, out: Any) -> Sums:
        right = out.prediction.argmax(1).eq(batch.targets).sum().item()
        return {"loss": out.loss.item() * len(batch.targets), "accuracy": right, "count": len(batch.targets)}

    @classmethod
    def columns(cls, data: SequenceData, names: Sequence[str], outputs: Sequence[NDArray[Any]]) -> Columns:
        """One row per sequence: its label, and the probabilities of all labels."""
        return {"series": names, **label_columns(data, np.stack(outputs))}


def confusion(logits: Tensor, targets: Tensor) -> Tensor:
    """Counts (labels, labels): a row per target, a column per prediction, from logits (N, labels)."""
    size = logits.shape[1]
    pairs = targets * size + logits.argmax(1)
    return torch.bincount(pairs, minlength=size * size).view(size, size)


def label_columns(data: SequenceData, logits: NDArray[Any]) -> Columns:
    """The most probable labels, and the probabilities of all labels, from logits (N, labels)."""
    scores, labels = torch.from_numpy(logits).double(), label_names(data)
    shares = scores.softmax(1)
    return {
        "label": [labels[i] for i in scores.argmax(1).tolist()],
        **{f"p({label})": shares[:, i].tolist() for i, label in enumerate(labels)},
    }


def label_names(data: SequenceData) -> list[str]:
    """The names of the classes; their numbers if they have none."""
    return list(data.labels) or [str(label) for label in range(data.output_size)]
