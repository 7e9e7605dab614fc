"""What a regressor predicts instead of one number per value: quantiles, or a distribution.

With the target y, the levels t, and the numbers r of the readout:

    quantiles   q(m) = r(m) at the level nearest to 1/2; q(i+1) = q(i) + softplus(r(i+1)) above it, and likewise below,
                so that quantiles never cross
                loss: pinball, the mean over the levels of max(t (y - q), (t - 1) (y - q))
    normal      mean r(0), deviation s = softplus(r(1)) + FLOOR
                loss: log s + z^2 / 2 + log(2 pi) / 2, with z = (y - mean) / s
    student-t   location r(0), scale s = softplus(r(1)) + FLOOR, and n degrees of freedom, one learned number per value
                loss: log s - log G((n+1)/2) + log G(n/2) + log(n pi) / 2 + (n+1)/2 log(1 + z^2 / n)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from trellisnet.models.options import SequenceOptions

LEVELS = (0.1, 0.5, 0.9)  # at which a distribution is judged and written
FLOOR = 1e-4  # of scales: a target that never changes would otherwise have an infinite density
NODES, WEIGHTS = np.polynomial.legendre.leggauss(64)


class Spread(nn.Module, ABC):
    """How uncertain values are.

    Args:
        values: number of values.
        levels: levels of the quantiles that it gives, ascending.

    Attributes:
        size: numbers per value that the readout gives.
    """

    size: int

    def __init__(self, values: int, levels: Sequence[float]) -> None:
        super().__init__()
        self.values, self.levels = values, tuple(levels)

    @abstractmethod
    def forward(self, raw: Tensor) -> Tensor:
        """Map the readout's numbers (..., values * size) to the prediction (..., values, numbers)."""

    @abstractmethod
    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        """The loss of each target (..., values)."""

    @abstractmethod
    def quantiles(self, prediction: Tensor) -> Tensor:
        """The quantiles (..., values, levels) of a prediction."""

    @abstractmethod
    def point(self, prediction: Tensor) -> Tensor:
        """The forecast of each value (..., values): the median, or the quantile nearest to it."""

    def _split(self, raw: Tensor) -> Tensor:
        each: Tensor = raw.unflatten(-1, (self.values, self.size))
        return each


class Quantiles(Spread):
    """Quantiles that never cross; the prediction is (..., values, levels)."""

    def __init__(self, values: int, levels: Sequence[float]) -> None:
        super().__init__(values, levels)
        self.size = len(levels)
        self.middle = min(range(self.size), key=lambda i: abs(levels[i] - 0.5))

    def forward(self, raw: Tensor) -> Tensor:
        lower, middle, upper = self._split(raw).split([self.middle, 1, self.size - self.middle - 1], dim=-1)
        below = middle - F.softplus(lower).cumsum(-1).flip(-1)  # the first number is that of the level below the middle
        return torch.cat([below, middle, middle + F.softplus(upper).cumsum(-1)], dim=-1)

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return pinball(prediction, targets, self.levels)

    def quantiles(self, prediction: Tensor) -> Tensor:
        return prediction

    def point(self, prediction: Tensor) -> Tensor:
        return prediction[..., self.middle]


class Normal(Spread):
    """A normal distribution; the prediction is (..., values, 2): mean and deviation."""

    size = 2

    def forward(self, raw: Tensor) -> Tensor:
        mean, scale = self._split(raw).unbind(-1)
        return torch.stack([mean, F.softplus(scale) + FLOOR], dim=-1)

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        mean, scale = prediction.unbind(-1)
        return scale.log() + ((targets - mean) / scale).square() / 2 + math.log(2 * math.pi) / 2

    def quantiles(self, prediction: Tensor) -> Tensor:
        mean, scale = prediction[..., :1], prediction[..., 1:2]
        standard: Tensor = torch.special.ndtri(prediction.new_tensor(self.levels))
        return mean + scale * standard

    def point(self, prediction: Tensor) -> Tensor:
        return prediction[..., 0]


class StudentT(Spread):
    """Student's t distribution; the prediction is (..., values, 3): location, scale and degrees of freedom.

    The degrees of freedom, above 2 so that the variance exists, do not depend on the input.
    """

    size = 2

    def __init__(self, values: int, levels: Sequence[float], **where: Any) -> None:
        super().__init__(values, levels)
        self.degrees = nn.Parameter(torch.full((values,), 4.0, **where))  # about 6 degrees of freedom

    def forward(self, raw: Tensor) -> Tensor:
        location, scale = self._split(raw).unbind(-1)
        degrees = (2 + F.softplus(self.degrees)).to(raw.dtype).expand_as(location)
        return torch.stack([location, F.softplus(scale) + FLOOR, degrees], dim=-1)

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        location, scale, n = prediction.unbind(-1)
        z = (targets - location) / scale
        constant = torch.lgamma(n / 2) - torch.lgamma((n + 1) / 2) + (n * math.pi).log() / 2
        return constant + scale.log() + (n + 1) / 2 * torch.log1p(z.square() / n)

    def quantiles(self, prediction: Tensor) -> Tensor:
        """The quantiles; without gradients of the degrees of freedom."""
        degrees = (2 + F.softplus(self.degrees.detach().double())).cpu().numpy()
        standard = prediction.new_tensor(student_quantiles(degrees, self.levels))  # (values, levels)
        return prediction[..., :1] + prediction[..., 1:2] * standard

    def point(self, prediction: Tensor) -> Tensor:
        return prediction[..., 0]


def spread_for(options: SequenceOptions, values: int, where: dict[str, Any]) -> Spread | None:
    """What a model's options ask for; None: one number per value."""
    if options.quantiles is not None:
        return Quantiles(values, options.quantiles)
    if options.distribution == "normal":
        return Normal(values, LEVELS)
    return None if options.distribution is None else StudentT(values, LEVELS, **where)


def pinball(quantiles: Tensor, targets: Tensor, levels: Sequence[float]) -> Tensor:
    """The mean over the levels of the pinball loss of quantiles (..., levels), for targets (...)."""
    above = targets.unsqueeze(-1) - quantiles
    shares = quantiles.new_tensor(levels)
    return torch.maximum(shares * above, (shares - 1) * above).mean(-1)


def student_quantiles(degrees: NDArray[np.float64], levels: Sequence[float]) -> NDArray[np.float64]:
    """The quantiles (N, levels) of Student's t distribution with n degrees of freedom each, (N,).

    With x = sqrt(n) tan(a), the distribution function is an integral of cos^(n-1) from 0 to a, and is inverted by
    bisection.

    >>> student_quantiles(np.array([5.0]), [0.1, 0.5, 0.95]).round(4).tolist()
    [[-1.4759, 0.0, 2.015]]
    """
    n, shares = degrees[:, None], np.asarray(levels)[None, :]
    whole = np.array([math.lgamma(each / 2) - math.lgamma((each + 1) / 2) for each in degrees.tolist()])[:, None]
    wanted = np.abs(shares - 0.5) * math.sqrt(math.pi) * np.exp(whole)

    def reached(x: NDArray[np.float64]) -> NDArray[np.float64]:
        half = np.arctan(x / np.sqrt(n)) / 2
        return half * (np.cos(half[..., None] * (NODES + 1)) ** (n - 1)[..., None] @ WEIGHTS)

    low, high = np.zeros(wanted.shape), np.ones(wanted.shape)
    while (short := reached(high) < wanted).any():
        high = np.where(short, 2 * high, high)
    for _ in range(60):
        middle = (low + high) / 2
        short = reached(middle) < wanted
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    found: NDArray[np.float64] = np.sign(shares - 0.5) * (low + high) / 2
    return found
