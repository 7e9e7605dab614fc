"""Backtests: forecasts from several origins in a split, and their errors per origin and per step."""

from __future__ import annotations

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
        by_step: the same, a list with one number per step of the forecasts.
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
        """In types that JSON knows."""
        return asdict(self)


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
    naive = task.naive_forecasts
    for batch in ItemBatches(chosen, task.training.evaluation_batch):
        judged = {MODEL: task.measures(task.predictions(batch), batch.targets)}
        judged |= {} if naive is None else naive.measures(batch.inputs, batch.targets)
        for name, values in judged.items():
            for metric, each in values.items():
                found.setdefault(name, {}).setdefault(metric, []).append(each)
    tables = {
        name: {metric: _table(parts, len(before), count, form.horizon) for metric, parts in values.items()}
        for name, values in found.items()
    }
    return Backtest(
        split,
        form.horizon,
        before,
        {name: {metric: table.mean().item() for metric, table in each.items()} for name, each in tables.items()},
        _means(tables, 1),
        _means(tables, 0),
        f"{count} origins per series; {task.protocol().partition(', ')[2]}",
    )


def _table(parts: list[Tensor], series: int, origins: int, horizon: int) -> Tensor:
    """The mean of a metric (origins, horizon), of values (series * origins, horizon * D)."""
    values = torch.cat(parts).double()
    return values.reshape(series, origins, horizon, -1).mean((0, 3))


def _means(tables: Mapping[str, Mapping[str, Tensor]], dim: int) -> Errors:
    return {name: {metric: table.mean(dim).tolist() for metric, table in each.items()} for name, each in tables.items()}
