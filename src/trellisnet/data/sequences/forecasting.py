"""Forecasting: windows of series, and the steps after them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellisnet.data.batches import Items
from trellisnet.data.sequences.data import Scale, SequenceData, SeriesForm
from trellisnet.data.sequences.filling import with_marks
from trellisnet.data.sequences.series import HELD_OUT, SPLITS, Series


class WindowItems(Items):
    """Windows of series, and the steps after each.

    Args:
        values: (total steps, channels), the series concatenated; NaN where they are missing and masked.
        starts: the first row of each window, ascending.
        form: window, horizon and columns.
        series: names of the series, and the first row of each.
    """

    def __init__(
        self, values: NDArray[np.float32], starts: NDArray[np.int64], form: SeriesForm, series: dict[str, int]
    ) -> None:
        assert form.window is not None
        assert form.horizon is not None
        self.series = series
        self.values, self.starts, self.form = values, starts, form
        self.window, self.steps = form.window, form.window + form.horizon
        self.predicted = form.predicted(values.shape[1])

    def __len__(self) -> int:
        return len(self.starts)

    def take(
        self, indices: NDArray[np.int64], steps: int | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return values (B, window, C) and the predicted ones of the next steps (B, horizon * D), step by step.

        If missing values are masked, inputs have their marks (B, window, 2 C), and targets are NaN.
        """
        both = self.values[self.starts[indices][:, None] + np.arange(self.steps)]
        inputs = read_window(both, self.form)
        return with_marks(inputs) if self.form.masked else inputs, both[:, self.window :, self.predicted].reshape(
            len(indices), -1
        )

    def origins(self, count: int) -> tuple[WindowItems, dict[str, list[int]]]:
        """`count` windows of each series at equal distances, and the number of steps before each forecast, by series.

        Raises:
            ValueError: a series has fewer windows; those without any are left out.
        """
        chosen, before = [], {}
        firsts = np.array(list(self.series.values()))
        which = np.searchsorted(firsts, self.starts, side="right") - 1
        for number, name in enumerate(self.series):
            own = self.starts[which == number]
            if not len(own):  # too short for this split
                continue
            if len(own) < count:
                of = f" of series {name!r}" if name else ""
                raise ValueError(f"must be at most {len(own)}, the number of forecasts{of} in this split, got {count}")
            rows = own[np.linspace(0, len(own) - 1, count).round().astype(np.int64)]
            chosen.append(rows)
            before[name] = (rows - firsts[number] + self.window).tolist()
        return WindowItems(self.values, np.concatenate(chosen), self.form, self.series), before


def read_window(both: NDArray[Any], form: SeriesForm) -> NDArray[Any]:
    """Return the input (..., window, C) of a forecast, from its window and the steps after it (..., T, C).

    Channels that are known ahead are read `horizon` steps ahead: the last `horizon` steps of the window then have their
    values at the steps to forecast.
    """
    window, ahead = form.window, form.known_ahead
    inputs = both[..., :window, :]
    if ahead:
        inputs = inputs.copy()
        inputs[..., ahead] = both[..., form.horizon :, ahead]
    return inputs


def forecasting(series: Series, form: SeriesForm, standardise: bool) -> SequenceData:
    """Return a dataset of windows and the steps after them, of the columns `form.targets` or of all."""
    assert form.window is not None
    assert form.horizon is not None
    window, horizon = form.window, form.horizon
    found: dict[str, list[NDArray[np.int64]]] = {name: [] for name in SPLITS}
    training = np.zeros(len(series.values), dtype=bool)
    predicted = form.predicted(series.values.shape[1])
    # whether any of the next steps has a value to predict
    counts = np.append(0, (~np.isnan(series.values[:, predicted])).any(axis=1).cumsum())
    targeted = counts[np.minimum(np.arange(len(series.values)) + horizon, len(series.values))] > counts[:-1]
    for start, length in zip(series.starts.tolist(), series.lengths.tolist(), strict=True):
        held = int(length * HELD_OUT)
        ends = (0, length - 2 * held, length - held, length)  # a split predicts values between two consecutive ends
        training[start : start + ends[1]] = True
        for name, first, end in zip(SPLITS, ends[:-1], ends[1:], strict=True):
            rows = start + np.arange(max(first, window), end - horizon + 1) - window
            found[name].append(rows[targeted[rows + window]])
    starts = {name: np.concatenate(rows) for name, rows in found.items()}
    if len(starts["train"]) == 0:
        raise ValueError(
            f"{series.path}: must have a series long enough for training windows of {window} + {horizon} steps with "
            f"{2 * HELD_OUT:.0%} held out, but the longest has {series.lengths.max()}"
        )
    scale = Scale.of(series.values[training]) if standardise else None
    values = series.values.astype(np.float32) if scale is None else scale.apply(series.values)
    channels = values.shape[1] * (2 if form.masked else 1)
    firsts = dict(zip(series.names, series.starts.tolist(), strict=True))
    splits = {name: WindowItems(values, rows, form, firsts) for name, rows in starts.items() if len(rows)}
    note = f"own series, {horizon} steps ahead" + (", standardised" if standardise else "")
    target_scale = None
    if scale is not None:
        target_scale = Scale(*(np.tile(part[predicted], horizon) for part in (scale.mean, scale.deviation)))
    size = horizon * len(predicted)
    return SequenceData(
        series.path.name, "regression", channels, size, splits, note, (), scale, target_scale, form=form
    )
