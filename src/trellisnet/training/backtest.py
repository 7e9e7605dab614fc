"""Backtests: forecasts from several origins in a split, and their errors per origin and per step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trellisnet.core.checks import positive_int
from trellisnet.data.batches import ItemBatches
from trellisnet.data.sequences.forecasting import WindowItems
from trellisnet.training.fit import Fitted
from trellisnet.training.tasks.base import Task
from trellisnet.training.tasks.regression import RegressionTask
from trellisnet.training.trained import load_task

MODEL = "model"

Errors = dict[str, dict[str, list[float]]]  # by forecast, "model" or a naive one, and by metric


@dataclass(frozen=True)
class Backtest:
    """Errors of forecasts, the model's beside naive ones. Means over all series and all predicted columns.

    Attributes:
        split: the split that is forecast.
        horizon: steps of a forecast.
        origins: number of steps before each forecast, by series; origins are at equal distances.
        overall: by forecast ("model", "last value", ...) and metric.
        by_origin: the same, a list with one number per origin.
        by_step: the same, a list with one number per step of the forecasts; NaN if all its targets are missing.
        protocol: how the errors are measured.
    """

    split: str
    horizon: int
    origins: dict[str, list[int]]
    overall: dict[str, dict[str, float]]
    by_origin: Errors
    by_step: Errors
    protocol: str

    def facts(self) -> dict[str, Any]:
        """In types that JSON knows: no NaN."""
        facts = asdict(self)
        for errors in (facts["by_origin"], facts["by_step"]):
            for each in errors.values():
                each.update({name: [None if math.isnan(v) else v for v in values] for name, values in each.items()})
        return facts


def backtest(run: Path | str | Fitted, origins: int, *, split: str = "test", which: str = "best") -> Backtest:
    """Forecast from several origins in a split, as if each were the present. The model is not trained again.

    Args:
        run: the folder of a run on your own files, or the result of `fit` on them.
        origins: number of origins per series, from the first to the last of the split at equal distances.
        split: the split of which all steps of the forecasts are.
        which: "best", the best model by validation, or "last", the model after the last epoch.

    Raises:
        ValueError: the run does not forecast, or a series has fewer origins.
    """
    folder = run.folder if isinstance(run, Fitted) else Path(run)
    return backtest_task(load_task(folder, which), origins, split)


def backtest_task(task: Task, origins: int, split: str) -> Backtest:
    """The backtest of a loaded task."""
    form = task.data.form if isinstance(task, RegressionTask) else None
    if form is None or form.horizon is None or not isinstance(task, RegressionTask):
        raise ValueError(f"backtest belongs to forecasting, and the task is {task.data.task}")
    count = positive_int("backtest", origins)
    items = task.data.splits.get(split)
    if not isinstance(items, WindowItems):
        raise ValueError(f"split must be one of {', '.join(task.splits)}, got {split!r}")
    try:
        chosen, before = items.origins(count)
    except ValueError as error:
        raise ValueError(f"backtest {error}") from None
    found: dict[str, dict[str, list[Tensor]]] = {}
    known: list[Tensor] = []
    naive = task.naive_forecasts
    for batch in ItemBatches(chosen, task.training.evaluation_batch):
        judged = {MODEL: task.measures(task.predictions(batch), batch.targets)}
        judged |= {} if naive is None else naive.measures(batch.inputs, batch.targets)
        known.append(~batch.targets.isnan())
        for name, values in judged.items():
            for metric, each in values.items():
                found.setdefault(name, {}).setdefault(metric, []).append(each)
    shape = (len(before), count, form.horizon, -1)
    there = torch.cat(known).reshape(shape)
    tables = {
        name: {metric: torch.cat(parts).double().reshape(shape) for metric, parts in values.items()}
        for name, values in found.items()
    }
    return Backtest(
        split,
        form.horizon,
        before,
        _means(tables, there, (0, 1, 2, 3)),
        _means(tables, there, (0, 2, 3)),
        _means(tables, there, (0, 1, 3)),
        f"{count} origins per series; {task.protocol().partition(', ')[2]}",
    )


def _means(
    tables: Mapping[str, Mapping[str, Tensor]], known: Tensor, dims: tuple[int, ...]
) -> dict[str, dict[str, Any]]:
    """The means of metrics (series, origins, horizon, values) over some dimensions, of targets that are known."""
    count = known.sum(dims)
    return {
        name: {metric: (torch.where(known, table, 0).sum(dims) / count).tolist() for metric, table in each.items()}
        for name, each in tables.items()
    }
