"""Regression: one or several values per sequence or step; includes forecasting."""

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
from trellisnet.models.build import build_regressor
from trellisnet.models.sequence import SequenceOutput, SequenceRegressor
from trellisnet.training.config import ModelConfig
from trellisnet.training.metrics import MAE, MSE
from trellisnet.training.tasks.base import Sums
from trellisnet.training.tasks.sequences import SequenceTask, inside, step_columns

PAIRS = 500  # maximum number of predictions in the report


class RegressionTask(SequenceTask):
    """One or several values per sequence or step."""

    kind = SequenceRegressor
    metric, others = MSE, (MAE,)
    summed = ("mse", "mae", "count")
    model: SequenceRegressor

    def build_model(self, chosen: ModelConfig) -> SequenceRegressor:
        data = self.data
        return build_regressor(chosen.body, data.input_size, data.output_size, **chosen.chosen())

    def sizes(self) -> dict[str, tuple[int, int]]:
        return {
            "input_size": (self.model.net.input_size, self.data.input_size),
            "num_values": (self.model.readout.out_features, self.data.output_size),
        }

    def check_model(self) -> None:
        super().check_model()
        expected = self.data.each_step
        if isinstance(self.model, SequenceRegressor) and self.model.each_step != expected:
            raise ValueError(f"model must have each_step = {expected} for the targets of {self.data.name}")

    def judge(self, batch: Batch, out: Any) -> Sums:
        difference = out.prediction - batch.targets
        if self.data.each_step:
            difference = inside(difference, batch)
        return {
            "mse": difference.square().sum().item(),
            "mae": difference.abs().sum().item(),
            "count": difference.numel(),
        }

    def naive(self, split: str) -> dict[str, dict[str, float]]:
        """Of forecasting: the errors of repeating the last value, and the last season if there is one."""
        form = self.data.form
        if form.horizon is None or form.window is None or not self.predicts:
            return {}
        channels, steps = form.predicted(self.data.input_size), torch.arange(form.horizon)
        sources = {"last value": torch.full_like(steps, form.window - 1)}
        if form.season is not None:
            sources[f"last season of {form.season}"] = form.window - form.season + steps % form.season
        found = {name: dict.fromkeys(self.summed, 0.0) for name in sources}
        for batch in self.data.batches(split, self.training.evaluation_batch):
            for name, source in sources.items():
                prediction = batch.inputs[:, source][:, :, channels].flatten(1)  # (B, horizon * D)
                for key, value in self.judge(batch, SequenceOutput(prediction)).items():
                    found[name][key] += value
        return {name: self.measure(sums) for name, sums in found.items()}

    def protocol(self, evaluation: str | None = None) -> str:
        units = "in the units of the data" if self.data.target_scale is None else "of standardised values"
        return f"{super().protocol(evaluation)}, errors {units}"

    @classmethod
    def columns(cls, data: SequenceData, names: Sequence[str], outputs: Sequence[NDArray[Any]]) -> Columns:
        """One row of values per sequence, per step, or per step of a forecast."""
        values = [each if data.target_scale is None else data.target_scale.restore(each) for each in outputs]
        horizon = data.form.horizon
        if horizon is not None:
            values = [each.reshape(horizon, -1) for each in values]
        rows = values if data.each_step or horizon is not None else [each[None] for each in values]
        table = np.concatenate(rows).astype(np.float64)
        titles = data.form.targets or (data.form.values if horizon is not None else ())
        titles = titles or tuple(f"value {i + 1}" for i in range(table.shape[1]))
        titles = tuple(f"{title} (value)" if title in ("series", "step") else title for title in titles)
        found = {title: table[:, i].tolist() for i, title in enumerate(titles)}
        return {**({"series": names} if rows is not values else step_columns(names, rows)), **found}

    def shown(self) -> dict[str, Any]:
        """Predictions and targets of the first value of each sequence, at its last step if it has several."""
        if not self.predicts:
            return {}
        targets: list[float] = []
        predicted: list[float] = []
        for batch in self.data.batches(self.shown_split, min(PAIRS, self.training.evaluation_batch)):
            targets += self._first(batch.targets, batch)
            predicted += self._first(self.predictions(batch), batch)
            if len(targets) >= PAIRS:
                break
        return {"predictions": {"target": targets[:PAIRS], "predicted": predicted[:PAIRS]}}

    def _first(self, values: Tensor, batch: Batch) -> list[float]:
        if self.data.each_step:
            ends = torch.full((len(values),), values.shape[1]) if batch.lengths is None else batch.lengths
            values = values[torch.arange(len(values)), ends - 1]
        numbers: list[float] = values[:, 0].tolist()
        return numbers
