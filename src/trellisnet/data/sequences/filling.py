"""Fill missing values of series."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

FILLS = ("forward", "linear", "zero")


def fill_missing(
    values: NDArray[np.float64], lengths: NDArray[np.int64], fill: str | None, place: Callable[[int, int], str]
) -> NDArray[np.float64]:
    """Replace NaN in series.

    Args:
        values: (total steps, channels), the series concatenated.
        lengths: (series,).
        fill: "forward", the last value before; "linear", between the values before and after; "zero"; or None, which
            leaves the values as they are.
        place: describes the position of a step and channel, for errors.

    Raises:
        ValueError: the first value of a series is missing, or for "linear" the last one.
    """
    missing = np.isnan(values)
    if fill is None or not missing.any():
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
