"""Prediction intervals for the report: what came true, and the quantiles that were predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from trellisnet.data.batches import Batch
from trellisnet.data.sequences.data import Scale
from trellisnet.data.sequences.filling import repeated_last

if TYPE_CHECKING:
    from trellisnet.training.tasks.regression import RegressionTask

WINDOWS = 3  # forecasts that are drawn
STEPS = 60  # of predictions that are not forecasts of several steps
PAST = 3  # horizons before a forecast


def shown_intervals(task: RegressionTask) -> list[dict[str, Any]]:
    """Charts of the first value, in the units of the data: `past`, `target`, `levels` and `quantiles` of each.

    Of forecasts of several steps, windows at equal distances; of values at every step, the first sequence; otherwise
    one chart of consecutive items.
    """
    items, form, spread = task.data.splits[task.shown_split], task.data.form, task.spread
    assert spread is not None
    several = form.horizon is not None and form.horizon > 1
    count = min(len(items), WINDOWS if several else 1 if task.data.each_step else STEPS)
    rows = np.linspace(0, len(items) - 1, count).astype(np.int64) if several else np.arange(count)
    steps = None if items.lengths is None else int(items.lengths[rows].max())
    inputs, targets = (torch.from_numpy(part) for part in items.take(rows, steps))
    lengths = None if items.lengths is None else torch.from_numpy(items.lengths[rows])
    prediction = task.predictions(Batch(inputs, targets, lengths))
    quantiles = spread.quantiles(prediction).double().numpy()  # (B, D, Q) or (B, T, D, Q)
    scale, truth = task.data.target_scale, targets.double().numpy()
    if not several:
        if task.data.each_step:
            quantiles, truth = quantiles[0], truth[0]
        return [_chart(task, "", [], restored(truth, scale)[:STEPS, 0], _of_quantiles(quantiles, scale)[:STEPS, 0])]
    assert form.horizon is not None
    channel, values = form.predicted(task.data.channels)[0], task.data.output_size // form.horizon
    read = repeated_last(inputs) if form.masked else inputs
    charts = []
    for i, row in enumerate(rows.tolist()):
        past = read[i, -PAST * form.horizon :].double().numpy()
        past = restored(past, task.data.input_scale)[:, channel]
        found = restored(truth[i], scale)[::values], _of_quantiles(quantiles[i], scale)[::values]
        charts.append(_chart(task, f"window {row + 1:,} of {len(items):,}", past.tolist(), *found))
    return charts


def restored(values: NDArray[np.float64], scale: Scale | None) -> NDArray[np.float64]:
    """Values (..., C) in the units of the data."""
    return values if scale is None else scale.restore(values)


def _of_quantiles(quantiles: NDArray[np.float64], scale: Scale | None) -> NDArray[np.float64]:
    """Quantiles (..., D, Q) in the units of the data."""
    return restored(quantiles.swapaxes(-1, -2), scale).swapaxes(-1, -2)


def _chart(
    task: RegressionTask, where: str, past: list[float], target: NDArray[np.float64], quantiles: NDArray[np.float64]
) -> dict[str, Any]:
    names = task.data.form.targets or task.data.form.values
    assert task.spread is not None
    return {
        "name": ", ".join(part for part in (names[0] if names else "", where) if part),
        "past": past,
        "target": target.tolist(),
        "levels": list(task.spread.levels),
        "quantiles": quantiles.tolist(),
    }
