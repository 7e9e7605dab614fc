"""Regression: one or several values per sequence or step; includes forecasting."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trellisnet.data.batches import Batch
from trellisnet.data.files.columns import Columns
from trellisnet.data.sequences.data import SequenceData
from trellisnet.models.build import build_regressor
from trellisnet.models.distributions import Spread
from trellisnet.models.sequence import SequenceRegressor
from trellisnet.training.config import ModelConfig
from trellisnet.training.metrics import COVERAGE, MAE, MSE, NLL, PINBALL, Metric
from trellisnet.training.tasks.base import Sums
from trellisnet.training.tasks.forecasts import NaiveForecasts, measures, nominal_coverage, spread_measures
from trellisnet.training.tasks.intervals import restored, shown_intervals
from trellisnet.training.tasks.sequences import SequenceTask, inside, step_columns

PAIRS = 500  # maximum number of predictions in the report


class RegressionTask(SequenceTask):
    """One or several values per sequence or step."""

    kind = SequenceRegressor
    metric = MSE
    others: tuple[Metric, ...] = (MAE,)
    summed: tuple[str, ...] = ("mse", "mae", "count")
    model: SequenceRegressor

    def build_model(self, chosen: ModelConfig) -> SequenceRegressor:
        data = self.data
        return build_regressor(chosen.body, data.input_size, data.output_size, **chosen.chosen())

    @property
    def spread(self) -> Spread | None:
        """How the model predicts uncertainty; None: it does not."""
        return _spread_of(self.model)

    def sizes(self) -> dict[str, tuple[int, int]]:
        return {
            "input_size": (self.model.net.input_size, self.data.input_size),
            "num_values": (self.model.num_values, self.data.output_size),
        }

    def check_model(self) -> None:
        super().check_model()
        expected = self.data.each_step
        if isinstance(self.model, SequenceRegressor) and self.model.each_step != expected:
            raise ValueError(f"model must have each_step = {expected} for the targets of {self.data.name}")
        if self.spread is not None:
            self.metric, self.others = PINBALL, (MSE, MAE, COVERAGE)
            if self.model.options.distribution is not None:
                self.metric, self.others = NLL, (PINBALL, *self.others)
            self.summed = (*(metric.name for metric in (self.metric, *self.others)), "count")

    def judge(self, batch: Batch, out: Any) -> Sums:
        found, targets = self.measures(out.prediction, batch.targets), batch.targets
        if self.data.each_step:
            found = {name: inside(values, batch) for name, values in found.items()}
            targets = inside(targets, batch)
        return _sums(found, targets)

    def measures(self, prediction: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """How good a prediction is, value by value, by metric."""
        if self.spread is None:
            return measures(prediction, targets)
        return spread_measures(self.spread, prediction, targets, self.metric is NLL)

    @cached_property
    def naive_forecasts(self) -> NaiveForecasts | None:
        """Forecasts to compare with; None: the task is not forecasting."""
        if self.data.form.horizon is None or not self.predicts:
            return None
        return NaiveForecasts(self.data, () if self.spread is None else self.spread.levels)

    def naive(self, split: str) -> dict[str, dict[str, float]]:
        """Of forecasting: the errors of repeating the last value, and the last season if there is one."""
        if self.naive_forecasts is None:
            return {}
        found: dict[str, Sums] = {}
        for batch in self.data.batches(split, self.training.evaluation_batch):
            for name, judged in self.naive_forecasts.measures(batch.inputs, batch.targets).items():
                sums = _sums(judged, batch.targets)
                total = found.setdefault(name, dict.fromkeys(sums, 0.0))
                for key, value in sums.items():
                    total[key] += value
        return {name: self.measure(sums) for name, sums in found.items()}

    def protocol(self, evaluation: str | None = None) -> str:
        units = "in the units of the data" if self.data.target_scale is None else "of standardised values"
        protocol = f"{super().protocol(evaluation)}, errors {units}"
        if self.spread is None:
            return protocol
        levels = self.spread.levels
        between = (
            f"between the quantiles {levels[0]:g} and {levels[-1]:g}" if len(levels) > 1 else f"below {levels[0]:g}"
        )
        return (
            f"{protocol}; coverage is the share of targets {between}, {nominal_coverage(levels):.0%} if these are right"
        )

    @classmethod
    def predict(
        cls, model: Any, facts: Mapping[str, Any], inputs: Any, batch_size: int, per: str | None = None
    ) -> Columns:
        spread = _spread_of(model)
        found = cls.answers(model, facts, inputs, batch_size, per)
        return cls.columns(*found, () if spread is None else spread.levels)

    @classmethod
    def answer(cls, model: Any, inputs: Tensor, lengths: Mapping[str, Tensor]) -> Tensor:
        """The model's values (B, D) or (B, T, D), or their quantiles (B, D * levels) or (B, T, D * levels)."""
        prediction, spread = super().answer(model, inputs, lengths), _spread_of(model)
        return prediction if spread is None else spread.quantiles(prediction).flatten(-2)

    @classmethod
    def columns(
        cls, data: SequenceData, names: Sequence[str], outputs: Sequence[NDArray[Any]], levels: Sequence[float] = ()
    ) -> Columns:
        """One row of values per sequence, per step, or per step of a forecast; each value has a column per level."""
        horizon, count = data.form.horizon, max(1, len(levels))
        rows = []
        for each in outputs:
            values = restored(each.reshape(-1, data.output_size, count).swapaxes(1, 2), data.target_scale)  # (T, Q, D)
            values = values.reshape(len(values), count, horizon or 1, -1).transpose(
                0, 2, 3, 1
            )  # (T, horizon, values, Q)
            rows.append(values.reshape(-1, values.shape[2] * count))
        table = np.concatenate(rows).astype(np.float64)
        titles = data.form.targets or (data.form.values if horizon is not None else ())
        titles = titles or tuple(f"value {i + 1}" for i in range(table.shape[1] // count))
        titles = tuple(f"{title} (value)" if title in ("series", "step") else title for title in titles)
        if levels:
            titles = tuple(f"{title} ({level:g})" for title in titles for level in levels)
        found = {title: table[:, i].tolist() for i, title in enumerate(titles)}
        whole = horizon is None and not data.each_step
        return {**({"series": names} if whole else step_columns(names, rows)), **found}

    def shown(self) -> dict[str, Any]:
        """Predictions and targets of the first value of each sequence, at its last step if it has several."""
        if not self.predicts:
            return {}
        targets: list[float] = []
        predicted: list[float] = []
        for batch in self.data.batches(self.shown_split, min(PAIRS, self.training.evaluation_batch)):
            targets += self._first(batch.targets, batch)
            prediction = self.predictions(batch)
            predicted += self._first(prediction if self.spread is None else self.spread.point(prediction), batch)
            if len(targets) >= PAIRS:
                break
        known = [i for i, target in enumerate(targets) if not math.isnan(target)][:PAIRS]
        pairs = {"target": [targets[i] for i in known], "predicted": [predicted[i] for i in known]}
        return {"predictions": pairs, **({} if self.spread is None else {"intervals": shown_intervals(self)})}

    def _first(self, values: Tensor, batch: Batch) -> list[float]:
        if self.data.each_step:
            ends = torch.full((len(values),), values.shape[1]) if batch.lengths is None else batch.lengths
            values = values[torch.arange(len(values)), ends - 1]
        numbers: list[float] = values[:, 0].tolist()
        return numbers


def _sums(judged: Mapping[str, Tensor], targets: Tensor) -> Sums:
    """The sum of each metric over the values whose targets are not missing, and their number."""
    known = ~targets.isnan()
    return {**{name: values[known].sum().item() for name, values in judged.items()}, "count": int(known.sum())}


def _spread_of(model: Any) -> Spread | None:
    return model.spread if isinstance(model, SequenceRegressor) else None
