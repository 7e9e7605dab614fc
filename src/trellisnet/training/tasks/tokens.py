"""Answers at the steps of a sequence of tokens, such as copy memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from trellisnet.data.batches import Batch
from trellisnet.data.files.columns import Columns
from trellisnet.data.sequences.data import SequenceData
from trellisnet.data.sequences.inputs import read_inputs
from trellisnet.models.body import nests_depths, run_depths
from trellisnet.models.build import build_language_model
from trellisnet.models.heads import IGNORED
from trellisnet.models.language import LanguageModel
from trellisnet.training.config import ModelConfig
from trellisnet.training.metrics import ACCURACY, LOSS
from trellisnet.training.tasks.base import Carried, Sums
from trellisnet.training.tasks.sequences import SequenceTask, step_columns


class TokenTask(SequenceTask):
    """Answers at some steps of a sequence of tokens, by a language model."""

    kind = LanguageModel
    takes_modules = False
    metric, others = ACCURACY, (LOSS,)
    summed = ("loss", "accuracy", "count")
    model: LanguageModel

    def build_model(self, chosen: ModelConfig) -> LanguageModel:
        options = {"embedding_size": self.data.input_size, **chosen.chosen()}
        return build_language_model(chosen.body, vocab_size=self._tokens, **options)

    def sizes(self) -> dict[str, tuple[int, int]]:
        return {"vocab_size": (self.model.vocab_size, self._tokens)}

    @property
    def _tokens(self) -> int:
        return max(self.data.input_size, self.data.output_size)

    def loss(
        self, model: nn.Module, batch: Batch, carried: Carried, depth: int | None
    ) -> tuple[Tensor, Mapping[str, Tensor], Carried]:
        out = model(batch.inputs, batch.targets, depth=depth)
        return out.loss, out.parts, None

    def outputs(self, batch: Batch, depths: Sequence[int | None]) -> Sequence[Tensor]:
        """Log-probabilities (B, T, V)."""
        model, history = self.model, self.model.options.history
        if len(depths) > 1 and nests_depths(model.net):
            found, _ = run_depths(model.net, model.vectors(batch.inputs), depths=depths)
            first = (model.options.horizon or 0) if history == "discard" else 0
            return [model.head.log_prob(features[first:]).transpose(0, 1) for features in found]
        return [model(batch.inputs, depth=depth, history=history).log_prob for depth in depths]

    def judge(self, batch: Batch, out: Tensor) -> Sums:
        log_prob, targets = out, batch.targets[:, -out.shape[1] :]
        counted = targets != IGNORED
        nll = -log_prob[counted].gather(1, targets[counted].unsqueeze(1)).sum().item()
        right = log_prob.argmax(-1).eq(targets)[counted].sum().item()
        return {"loss": nll, "accuracy": right, "count": int(counted.sum())}

    @classmethod
    def read_inputs(cls, data: SequenceData, inputs: Any) -> tuple[list[str], Sequence[NDArray[Any]]]:
        names, rows = read_inputs(replace(data, input_size=1), inputs)
        tokens = [row.astype(np.int64) for row in rows]
        for name, row, whole in zip(names, rows, tokens, strict=True):
            if (row != whole).any() or whole.min() < 0 or whole.max() >= data.input_size:
                raise ValueError(f"sequence {name} must be of integers in 0 .. {data.input_size - 1}")
        return names, tokens

    @classmethod
    def answer(cls, model: Any, inputs: Tensor, lengths: Mapping[str, Tensor]) -> Tensor:
        log_prob: Tensor = model(
            inputs[..., 0]
        ).log_prob  # no lengths needed: the model is causal, so padding after the end has no effect
        return log_prob

    @classmethod
    def columns(cls, data: SequenceData, names: Sequence[str], outputs: Sequence[NDArray[Any]]) -> Columns:
        """One row per step: the answer and its probability."""
        table = np.concatenate(outputs)
        return {
            **step_columns(names, outputs),
            "token": table.argmax(1).tolist(),
            "probability": np.exp(table.max(1).astype(np.float64)).tolist(),
        }
