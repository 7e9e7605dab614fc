"""Forecast a series from a CSV file one day ahead, and update the forecast every hour.

    python examples/forecast_series.py              # generates a series
    python examples/forecast_series.py load.csv     # your series, with the columns `hour` and `load`

The series has a daily rhythm, which is weaker on weekends, and random weather. A `TrellisRegressor` is compared with
three simple forecasts: repeat the last day, the same day of the last week, or the last hour.

Takes 15 seconds on one core. The last lines are:

    mean absolute error of 377 forecasts of the next day:
         trellis   6.79
      a week ago  12.41
       a day ago   9.77
      last value  17.55
    the day after the file: 87 85 79 75 74 79 84 94 100 108 113 113 117 114 114 106 105 104 103 99 98 100 94 94
"""

from __future__ import annotations

import csv
import math
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from trellisnet import TrainingConfig, TrellisRegressor, fit
from trellisnet.data import SequenceData, load

DAY, WEEK = 24, 168


def write_series(path: Path, hours: int = 4000) -> None:
    """Write a series of hourly load with a daily rhythm, weekends, and weather (a mean-reverting random walk)."""
    rng = np.random.default_rng(0)
    weather = 0.0
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["hour", "load"])
        for hour in range(hours):
            weather = 0.97 * weather + rng.normal(scale=2)
            rhythm = math.sin(2 * math.pi * hour / DAY) + 0.5 * math.sin(4 * math.pi * hour / DAY)
            weekend = hour % WEEK >= 5 * DAY
            table.writerow([hour, 100 + (10 if weekend else 20) * rhythm - 10 * weekend + weather])


def next_days(data: SequenceData, split: str, count: int) -> tuple[Tensor, Tensor]:
    """Windows of a split (N, window, 1), and the next day after each of their hours (N, window, day)."""
    batch = next(iter(data.batches(split, batch_size=count, shuffle=True)))
    whole = torch.cat([batch.inputs[..., 0], batch.targets], dim=1)  # (N, window + day)
    return batch.inputs, whole.unfold(1, DAY, 1)[:, 1:]


def main(path: Path | None = None, windows: int = 600) -> dict[str, float]:
    """Train on n windows of the series; return the mean absolute error of each forecast, in the units of the file."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        if path is None:
            path = Path(folder) / "load.csv"
            write_series(path)
        data = load("series", path=path, task="forecasting", values=["load"], time="hour", window=2 * WEEK, horizon=DAY)
        assert isinstance(data, SequenceData)
        assert data.target_scale is not None
        unit = float(data.target_scale.deviation[0])  # the model sees mean 0 and deviation 1

        # With `each_step`, every hour of a window is an example: the model predicts the next day at every step.
        reach = [1, 2, 4, 8, 16, 32, 64, 128]  # dilations: an output depends on about 256 hours
        model = TrellisRegressor(1, 32, num_layers=8, num_values=DAY, each_step=True, dilation=reach)
        config = TrainingConfig(
            epochs=2, batch_size=8, optimiser="adamw", learning_rate=0.01, schedule="cosine", warmup=0.3, clip=0.5
        )
        valid = next_days(data, "valid", 20)
        fit(model, next_days(data, "train", windows), config, Path(folder) / "run", valid=valid)

    # Each test window starts one hour after the previous one: read the first completely, then one new hour per window.
    errors: dict[str, list[float]] = {"trellis": [], "a week ago": [], "a day ago": [], "last value": []}
    state = None  # of the stream
    with torch.no_grad():
        for batch in data.batches("test", batch_size=1):
            out = model(batch.inputs if state is None else batch.inputs[:, -1:], state=state)
            state = out.state
            past = batch.inputs[0, :, 0]
            forecasts = {
                "trellis": out.prediction[0, -1],
                "a week ago": past[-WEEK:][:DAY],
                "a day ago": past[-DAY:],
                "last value": past[-1:].expand(DAY),
            }
            for name, forecast in forecasts.items():
                errors[name].append((forecast - batch.targets[0]).abs().mean().item() * unit)
        # After the last window, one day is left in the file: read it too, and forecast beyond the end.
        beyond = model(batch.targets[..., None], state=state).prediction[0, -1]

    result = {name: float(np.mean(each)) for name, each in errors.items()}
    print(f"mean absolute error of {len(errors['trellis'])} forecasts of the next day:")
    for name, error in result.items():
        print(f"{name:>12} {error:6.2f}")
    print("the day after the file:", *(f"{value:.0f}" for value in data.target_scale.restore(beyond.numpy())))
    return result


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
