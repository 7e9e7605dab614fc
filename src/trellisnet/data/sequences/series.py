"""Series of values, of unequal lengths, with or without a target each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellisnet.data.sequences.tables import Table

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Series:
    """Several series, concatenated.

    Attributes:
        path: the file, for errors.
        values: (total steps, channels).
        lengths: (series,), length of each series.
        names: names of the series.
        targets: (series, ...), labels or numbers as in the file; None: there are none.
        split: (series,), the split of each series; None: the file has none.
    """

    path: Path
    values: NDArray[np.float64]
    lengths: NDArray[np.int64]
    names: Sequence[str]
    targets: NDArray[Any] | None = None
    split: NDArray[np.str_] | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def starts(self) -> NDArray[np.int64]:
        """First row of each series in `values`."""
        return np.cumsum(self.lengths) - self.lengths


def group(
    table: Table, values: Sequence[str], targets: Sequence[str], series: str | None, time: str | None, split: str | None
) -> Series:
    """Group the rows of a table, one per step, into series.

    Args:
        table: has all the columns below.
        values: columns of the channels.
        targets: columns of the targets; constant within a series.
        series: column of the names of the series; None: all rows are one series.
        time: column to sort the rows of a series by, numbers or text such as 2024-01-31; None: keep their order.
        split: column of the splits; constant within a series.

    Raises:
        ValueError: a value is missing or not a number, a time occurs twice, or a target or split is not constant.
    """
    matrix = np.stack([table.numbers(column) for column in values], axis=1)
    labels = np.full(len(table), "") if series is None else table.names(series)
    names, first, which = np.unique(labels, return_index=True, return_inverse=True)
    appearance = np.argsort(first)  # series in the order of the file
    rank = np.empty(len(names), dtype=np.int64)
    rank[appearance] = np.arange(len(names))
    which = rank[which]
    if time is None:
        order = np.argsort(which, kind="stable")
    else:
        times = _times(table, time)
        order = np.lexsort((times, which))
        same = np.flatnonzero((which[order][1:] == which[order][:-1]) & (times[order][1:] == times[order][:-1]))
        if len(same):
            place = table.place(order[same[0] + 1], time)
            raise ValueError(f"{place}: a series must have one row per time, got {times[order[same[0]]]} twice")
    lengths = np.bincount(which)
    constant = {column: _constant(table, column, which, first[appearance]) for column in (*targets, split) if column}
    return Series(
        table.path,
        matrix[order],
        lengths,
        names[appearance].tolist(),
        np.stack([constant[column] for column in targets], axis=1) if targets else None,
        constant[split] if split else None,
    )


def _times(table: Table, column: str) -> NDArray[Any]:
    """Return a column as numbers if possible, otherwise as text."""
    try:
        table.columns[column].astype(np.float64)
    except (ValueError, TypeError):
        return table.names(column)
    return table.numbers(column)


def _constant(table: Table, column: str, which: NDArray[np.int64], first: NDArray[np.int64]) -> NDArray[np.str_]:
    """Return the value of a column for each series, which must be the same in all its rows."""
    values = table.names(column)
    wrong = np.flatnonzero(values != values[first][which])
    if len(wrong):
        row = wrong[0]
        before = values[first][which[row]]
        raise ValueError(
            f"{table.place(row, column)}: must be the same in a whole series, got {values[row]!r} after {before!r}"
        )
    return values[first]
