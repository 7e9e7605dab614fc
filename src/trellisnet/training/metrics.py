"""Metrics: their names, directions and formats. Does not import torch: reports read a run without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A measure of the quality of a model.

    Args:
        name: as in metrics.jsonl and in recipes.
        higher_is_better: by default lower values are better.
        percent: the value is a share, shown in percent.
        decimals: number of decimals shown; None: four significant digits.
        logarithmic: charts use a logarithmic axis.

    >>> accuracy = Metric("accuracy", higher_is_better=True, percent=True, decimals=2)
    >>> accuracy.formatted(0.9813), accuracy.axis
    ('98.13 %', 'accuracy, %')
    """

    name: str
    higher_is_better: bool = False
    percent: bool = False
    decimals: int | None = None
    logarithmic: bool = False

    def __str__(self) -> str:
        return self.name

    def judged(self, value: float) -> float:
        """The value with its sign changed if higher is better: lower results are better."""
        return -value if self.higher_is_better else value

    def scaled(self, value: float) -> float:
        """The value in the unit of the axis."""
        return 100 * value if self.percent else value

    def formatted(self, value: float) -> str:
        """The value as text.

        >>> PERPLEXITY.formatted(56.97), BITS.formatted(1.158), MSE.formatted(0.012345)
        ('56.97', '1.158', '0.01235')
        >>> PERPLEXITY.formatted(12345678.0)
        '1.235e+07'
        """
        shown = self.scaled(value)
        text = f"{shown:.4g}" if self.decimals is None or abs(shown) >= 1e6 else f"{shown:,.{self.decimals}f}"
        return f"{text} %" if self.percent else text

    @property
    def axis(self) -> str:
        """The label of a chart's axis."""
        return f"{self.name}, %" if self.percent else self.name


ACCURACY = Metric("accuracy", higher_is_better=True, percent=True, decimals=2)
MACRO_F1 = Metric("macro_f1", higher_is_better=True, percent=True, decimals=2)
MSE = Metric("mse", logarithmic=True)
MAE = Metric("mae", logarithmic=True)
PERPLEXITY = Metric("perplexity", decimals=2, logarithmic=True)
BITS = Metric("bits", decimals=3)
NLL = Metric("nll", decimals=3)  # nats per step, or per value
PINBALL = Metric("pinball", logarithmic=True)  # the mean over the levels
COVERAGE = Metric("coverage", higher_is_better=True, percent=True, decimals=1)
LOSS = Metric("loss")

# Of models that iterate until they converge: the mean and the maximum per call, with the path "steps" per step of it.
ITERATIONS, MOST_ITERATIONS = "iterations", "most_iterations"

# For runs of older versions, which have no metrics in task.json. The first one that a run has selects its best epoch.
STANDARD = {metric.name: metric for metric in (ACCURACY, MSE, PERPLEXITY, BITS, LOSS, MAE, NLL)}


def in_one_line(values: Mapping[str, float]) -> str:
    """Names and values of metrics as text.

    >>> in_one_line({"loss": 0.5, "accuracy": 0.75})
    'loss 0.5000, accuracy 0.7500'
    """
    return ", ".join(f"{name} {value:.4f}" for name, value in values.items())
