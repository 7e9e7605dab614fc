"""What results are measured in. Imports nothing heavy: reports read the metrics of a run without torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A number that tells how good a model is.

    Args:
        name: as in metrics.jsonl and in recipes.
        higher_is_better: by default lower values are better.
        percent: the value is a share, shown in percent.
        decimals: shown after the point; None: four significant digits.
        logarithmic: falls by factors, so that charts show it on a logarithmic axis.

    >>> accuracy = Metric("accuracy", higher_is_better=True, percent=True, decimals=2)
    >>> accuracy.told(0.9813), accuracy.axis
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
        """The value as a number of which lower is better."""
        return -value if self.higher_is_better else value

    def scaled(self, value: float) -> float:
        """The value in the unit of the axis."""
        return 100 * value if self.percent else value

    def told(self, value: float) -> str:
        """The value as text.

        >>> PERPLEXITY.told(56.97), BITS.told(1.158), MSE.told(0.012345), PERPLEXITY.told(12345678.0)
        ('56.97', '1.158', '0.01235', '1.235e+07')
        """
        shown = self.scaled(value)
        text = f"{shown:.4g}" if self.decimals is None or abs(shown) >= 1e6 else f"{shown:,.{self.decimals}f}"
        return f"{text} %" if self.percent else text

    @property
    def axis(self) -> str:
        """The label of an axis of a chart."""
        return f"{self.name}, %" if self.percent else self.name


ACCURACY = Metric("accuracy", higher_is_better=True, percent=True, decimals=2)
MSE = Metric("mse", logarithmic=True)
MAE = Metric("mae", logarithmic=True)
PERPLEXITY = Metric("perplexity", decimals=2, logarithmic=True)
BITS = Metric("bits", decimals=3)
LOSS = Metric("loss")

# Of runs whose folder does not tell, which older versions wrote; the first that such a run has is what it is judged by.
STANDARD = {metric.name: metric for metric in (ACCURACY, MSE, PERPLEXITY, BITS, LOSS, MAE)}
