"""Fill missing values of series, or mark them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # the options of a dataset are read without torch
    from torch import Tensor

MASKED = "masked"
FILLS = ("forward", "linear", "zero", MASKED)


def fill_missing(
    values: NDArray[np.float64], lengths: NDArray[np.int64], fill: str | None, place: Callable[[int, int], str]
) -> NDArray[np.float64]:
    """Replace NaN in series.

    Args:
        values: (total steps, channels), the series concatenated.
        lengths: (series,).
        fill: "forward", the last value before; "linear", between the values before and after; "zero"; or "masked" or
            None, which leave the values as they are.
        place: describes the position of a step and channel, for errors.

    Raises:
        ValueError: the first value of a series is missing, or for "linear" the last one.
    """
    missing = np.isnan(values)
    if fill in (None, MASKED) or not missing.any():
        return values
    if fill == "zero":
        return np.where(missing, 0.0, values)
    filled, ends = values.copy(), np.cumsum(lengths)
    for start, end in zip((ends - lengths).tolist(), ends.tolist(), strict=True):
        for channel in np.flatnonzero(missing[start:end].any(axis=0)).tolist():
            gaps, column = missing[start:end, channel], filled[start:end, channel]
            for at, side in ((0, "before"), (end - start - 1, "after")):
                if gaps[at] and (at == 0 or fill == "linear"):
                    raise ValueError(
                        f"{place(start + at, channel)}: is missing, and fill = {fill} needs a value {side} it"
                    )
            known = np.flatnonzero(~gaps)
            if fill == "linear":
                column[gaps] = np.interp(np.flatnonzero(gaps), known, column[known])
            else:
                column[gaps] = column[known[np.searchsorted(known, np.flatnonzero(gaps)) - 1]]
    return filled


def with_marks(values: NDArray[Any]) -> NDArray[Any]:
    """Values (..., C), 0 for NaN, and C more channels that mark them: 1 where there is a value, else 0."""
    missing = np.isnan(values)
    return np.concatenate([np.where(missing, 0, values), ~missing], axis=-1, dtype=values.dtype)


def repeated_last(values: Tensor) -> Tensor:
    """Of values with marks (B, T, 2 C): the values (B, T, C), each that is missing replaced by the last one before it.

    Before the first value of a channel they are 0.
    """
    import torch  # noqa: PLC0415

    values, marks = values.chunk(2, dim=-1)
    steps = torch.arange(values.shape[1], device=values.device).view(1, -1, 1)
    return values.gather(1, torch.where(marks > 0, steps, 0).cummax(dim=1).values)
