"""Independent labels at every step, such as the notes of the next chord."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from trellisnet.data.batches import Batch
from trellisnet.data.files.columns import Columns
from trellisnet.data.sequences.data import SequenceData
from trellisnet.models.build import build_labeller
from trellisnet.models.sequence import SequenceLabeller
from trellisnet.training.config import ModelConfig
from trellisnet.training.metrics import NLL
from trellisnet.training.tasks.base import Sums
from trellisnet.training.tasks.sequences import SequenceTask, inside, step_columns


class LabelsTask(SequenceTask):
    """Independent yes-or-no labels at every step. The metric is the negative log-likelihood of a step, in nats."""

    kind = SequenceLabeller
    metric, others = NLL, ()
    summed = ("nll", "count")
    model: SequenceLabeller

    def build_model(self, chosen: ModelConfig) -> SequenceLabeller:
        data = self.data
        return build_labeller(chosen.body, data.input_size, data.output_size, **chosen.chosen())

    def sizes(self) -> dict[str, tuple[int, int]]:
        return {
            "input_size": (self.model.net.input_size, self.data.input_size),
            "num_labels": (self.model.readout.out_features, self.data.output_size),
        }

    def judge(self, batch: Batch, out: Any) -> Sums:
        logits, targets = inside(out.prediction, batch), inside(batch.targets, batch)
        nll = F.binary_cross_entropy_with_logits(logits, targets.to(logits.dtype), reduction="sum")
        return {"nll": nll.item(), "count": len(logits)}

    def protocol(self, evaluation: str | None = None) -> str:
        return f"{super().protocol(evaluation)}; nats per step, the sum over all labels"

    @classmethod
    def columns(cls, data: SequenceData, names: Sequence[str], outputs: Sequence[NDArray[Any]]) -> Columns:
        """One row per step: the probability of every label."""
        table = torch.from_numpy(np.concatenate(outputs)).double().sigmoid()
        labels = data.labels or tuple(str(label) for label in range(data.output_size))
        return {
            **step_columns(names, outputs),
            **{f"p({label})": table[:, i].tolist() for i, label in enumerate(labels)},
        }
