"""Forecasts that need no model, and how forecasts are judged, value by value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from trellisnet.data.sequences.data import SequenceData
from trellisnet.data.sequences.filling import repeated_last
from trellisnet.models.distributions import Spread, pinball

MOST_WINDOWS = 10_000  # of the training split, from which the errors of naive forecasts are taken


class NaiveForecasts:
    """Repeat the last value, and the last season if there is one.

    Their quantiles are those of their own errors in the training split, at each step of the forecast, added to the
    forecast.

    Args:
        data: of forecasting.
        levels: of the quantiles; none: no quantiles.
    """

    def __init__(self, data: SequenceData, levels: Sequence[float] = ()) -> None:
        form = data.form
        assert form.window is not None
        assert form.horizon is not None
        self.channels, self.levels, steps = form.predicted(data.channels), tuple(levels), torch.arange(form.horizon)
        self.masked = form.masked
        self.sources = {"last value": torch.full_like(steps, form.window - 1)}
        if form.season is not None:
            self.sources[f"last season of {form.season}"] = form.window - form.season + steps % form.season
        self.errors: dict[str, Tensor] = {}  # (values, levels)
        if levels:
            items = data.splits["train"]
            rows = np.unique(np.linspace(0, len(items) - 1, min(len(items), MOST_WINDOWS)).astype(np.int64))
            inputs, targets = (torch.from_numpy(part) for part in items.take(rows))
            for name, forecast in self.points(inputs).items():
                found = np.nanquantile((targets - forecast).double().numpy(), self.levels, axis=0)
                self.errors[name] = torch.from_numpy(found.T.copy()).to(targets.dtype)

    def points(self, inputs: Tensor) -> dict[str, Tensor]:
        """The forecasts (B, horizon * D) from windows (B, T, C), by name; of missing values the ones before count."""
        inputs = repeated_last(inputs) if self.masked else inputs
        return {name: inputs[:, source][:, :, self.channels].flatten(1) for name, source in self.sources.items()}

    def measures(self, inputs: Tensor, targets: Tensor) -> dict[str, dict[str, Tensor]]:
        """How good each forecast is, by name: `measures` of its values."""
        found = {}
        for name, forecast in self.points(inputs).items():
            quantiles = forecast.unsqueeze(-1) + self.errors[name] if self.levels else None
            found[name] = measures(forecast, targets, quantiles, self.levels)
        return found


def measures(
    point: Tensor, targets: Tensor, quantiles: Tensor | None = None, levels: Sequence[float] = ()
) -> dict[str, Tensor]:
    """How good forecasts (..., D) and, if given, their quantiles (..., D, levels) are: value by value, by metric.

    Targets that are NaN are missing, and so is how good their forecasts are.
    Coverage is 1 where the target is between the lowest and the highest quantile, or below the only one.
    """
    difference = point - targets
    found = {"mse": difference.square(), "mae": difference.abs()}
    if quantiles is None:
        return found
    covered = targets <= quantiles[..., -1]
    if len(levels) > 1:
        covered &= targets >= quantiles[..., 0]
    return {
        "pinball": pinball(quantiles, targets, levels),
        **found,
        "coverage": torch.where(targets.isnan(), targets, covered.to(point.dtype)),
    }


def spread_measures(spread: Spread, prediction: Tensor, targets: Tensor, likelihood: bool) -> dict[str, Tensor]:
    """`measures` of a prediction with a spread; with `likelihood` also the negative log-likelihood, in nats."""
    found = measures(spread.point(prediction), targets, spread.quantiles(prediction), spread.levels)
    return {"nll": spread.loss(prediction, targets), **found} if likelihood else found


def nominal_coverage(levels: Sequence[float]) -> float:
    """The coverage that correct quantiles have."""
    return levels[-1] - levels[0] if len(levels) > 1 else levels[0]
