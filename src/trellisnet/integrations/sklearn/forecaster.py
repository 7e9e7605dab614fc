"""A forecaster of series with the manners of scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from typing_extensions import Self

from trellisnet.core.checks import positive_int
from trellisnet.data.sequences.data import Scale
from trellisnet.integrations.sklearn.base import TrellisEstimator
from trellisnet.integrations.sklearn.inputs import Rows
from trellisnet.integrations.sklearn.members import last_part
from trellisnet.models.trellis import TrellisRegressor

Series = NDArray[np.float64]  # (T, C)


class TrellisForecaster(TrellisEstimator):
    """A forecaster of one series with one or several channels.

    An ensemble of small trellis networks reads the last `window` steps and predicts the next `horizon` steps of all
    channels at once. Forecasts beyond `horizon` continue from the forecasts before. The networks see differences from
    the last step of their window in standard deviations, so that a trend or a drift of the level does not matter.
    Forecasts are in the units of the series.

    The last part of the series is held out to stop the training.

    Args:
        horizon: steps that are predicted at once.
        window: steps that are read; default the larger of 48 and three horizons, at most half of the series.
        options: those of `TrellisSequenceClassifier`, where sequences are windows of the series.

    Attributes:
        members_: the trained models, each a `TrellisRegressor`.
        window_: the steps that are read.
        series_: the end of the series, from which `predict` goes on.
        readout_, validation_loss_, n_epochs_, input_scale_: as of `TrellisSequenceClassifier`.
    """

    window_: int
    horizon_: int
    _bidirectional = False  # the last steps of the window matter most, and half the work is enough

    def __init__(
        self,
        *,
        horizon: int = 12,
        window: int | None = None,
        hidden_size: int = 32,
        num_layers: int | None = None,
        readout: str = "auto",
        members: int | None = None,
        max_epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float = 3e-3,
        validation_fraction: float = 0.2,
        patience: int = 15,
        model_options: Any = None,
        warm_start: bool = False,
        device: str = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        # scikit-learn reads the parameters from this signature, so they are named one by one
        super().__init__(
            hidden_size=hidden_size,
            num_layers=num_layers,
            readout=readout,
            members=members,
            max_epochs=max_epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            validation_fraction=validation_fraction,
            patience=patience,
            model_options=model_options,
            warm_start=warm_start,
            device=device,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
        )
        self.horizon = horizon
        self.window = window

    def fit(self, y: Any) -> Self:
        """Train on a series (T,) or (T, C).

        Raises:
            ValueError: the series is too short, or has values that are not finite.
        """
        series = self._read(y)
        horizon = positive_int("horizon", self.horizon)
        steps, channels = series.shape
        continues = self._continues()
        window = self.window_ if continues else self._window(steps)
        least = window + horizon + 4  # windows to train on, and one to hold out
        if steps < least:
            raise ValueError(
                f"y must have at least {least} steps for window={window} and horizon={horizon}, got {steps}"
            )
        if continues and (channels, horizon) != (self.n_channels_, self.horizon_):
            was = f"{self.n_channels_} channels and horizon={self.horizon_}"
            raise ValueError(f"warm_start continues with {was}, got {channels} and {horizon}")
        self.window_, self.horizon_, self.n_channels_, self.is_single_ = window, horizon, channels, np.ndim(y) == 1
        if not continues:
            self.input_scale_ = Scale.of(series)
        starts = range(steps - window - horizon + 1)
        rows = self._inputs([series[start : start + window] for start in starts])
        targets = np.stack(
            [
                ((series[end : end + horizon] - series[end - 1]) / self.input_scale_.deviation).ravel()
                for end in range(window, window + len(starts))
            ]
        ).astype(np.float32)
        self._train(
            rows,
            targets,
            lambda **options: TrellisRegressor(channels, num_values=horizon * channels, **options),
            lambda count, share, seed: [last_part(len(rows), share, gap=horizon - 1)] * count,
        )
        self.series_ = series[-window:]
        return self

    def predict(self, horizon: int | None = None, *, y: Any = None) -> Series:
        """Forecast the next steps, (horizon,) or (horizon, C) as in `fit`.

        Args:
            horizon: number of steps; default that of the estimator.
            y: the past of another series with the same channels, at least `window_` steps; default the series of `fit`.
        """
        check_is_fitted(self, "members_")
        count = positive_int("horizon", self.horizon_ if horizon is None else horizon)
        past = self.series_ if y is None else self._read(y)
        if past.shape[1] != self.n_channels_ or len(past) < self.window_:
            expected = f"{self.n_channels_} channels and at least {self.window_} steps"
            raise ValueError(f"y must have {expected}, got shape {np.shape(y)}")
        known = len(past)
        while len(past) < known + count:
            found = self._outputs(self._inputs([past[-self.window_ :]])).mean(0).reshape(self.horizon_, -1)
            past = np.concatenate([past, past[-1] + found * self.input_scale_.deviation])
        future = past[known : known + count]
        return future[:, 0] if self.is_single_ else future

    def score(self, y: Any) -> float:
        """R² of the forecast of the steps (H,) or (H, C) that follow the series of `fit`; 1 is exact."""
        truth = self._read(y)
        found = self.predict(len(truth)).reshape(truth.shape)
        residual, total = np.square(truth - found).sum(), np.square(truth - truth.mean(0)).sum()
        return float(1 - residual / total) if total > 0 else float(residual == 0)

    def _inputs(self, windows: list[Series]) -> Rows:
        """Windows as the networks read them."""
        return [((each - each[-1]) / self.input_scale_.deviation).astype(np.float32) for each in windows]

    def _window(self, steps: int) -> int:
        if self.window is not None:
            return positive_int("window", self.window)
        return max(1, min(max(48, 3 * self.horizon), (steps - self.horizon) // 2))

    @staticmethod
    def _read(y: Any) -> Series:
        """A series as (T, C), checked."""
        series = np.asarray(y, dtype=np.float64)
        if series.ndim not in (1, 2) or not series.size:
            raise ValueError(f"y must be a series (T,) or (T, C), got shape {series.shape}")
        if not np.isfinite(series).all():
            step = int(np.argwhere(~np.isfinite(series))[0][0])
            raise ValueError(f"y must be finite numbers, got {series[step].tolist()} at step {step}: fill it first")
        return series.reshape(len(series), -1)
