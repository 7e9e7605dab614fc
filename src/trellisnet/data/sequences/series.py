"""Series of values, of unequal lengths, with or without an answer each."""

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
    """Series one after the other.

    Attributes:
        path: the file they are from, for errors.
        values: (steps of all, channels).
        lengths: (series,), steps of each.
        names: of the series.
        answers: (series, ...), what is to be said of each, as it is in the file.
        split: (series,), to which split each belongs, if the file says so.
    """

    path: Path
    values: NDArray[np.float64]
    lengths: NDArray[np.int64]
    names: Sequence[str]
    answers: NDArray[Any] | None = None
    split: NDArray[np.str_] | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each series begins in `values`."""
        return np.cumsum(self.lengths) - self.lengths


def group(
    table: Table, values: Sequence[str], answer: Sequence[str], series: str | None, time: str | None, split: str | None
) -> Series:
    """The series of a table that has one row a step.

    Args:
        table: has all the columns named in the following.
        values: columns of the channels.
        answer: columns of what is to be said of a series; constant in each.
        series: column of the series' names; None: all rows are one series.
        time: column to sort the rows of a series by, numbers or text such as 2024-01-31; None: they are in order.
        split: column of the series' splits; constant in each.
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
        moments = _moments(table, time)
        order = np.lexsort((moments, which))
        same = np.flatnonzero((which[order][1:] == which[order][:-1]) & (moments[order][1:] == moments[order][:-1]))
        if len(same):
            place = table.place(order[same[0] + 1], time)
            raise ValueError(f"{place}: a series must have one row a moment, got {moments[order[same[0]]]} twice")
    lengths = np.bincount(which)
    constant = {column: _constant(table, column, which, first[appearance]) for column in (*answer, split) if column}
    return Series(
        table.path,
        matrix[order],
        lengths,
        names[appearance].tolist(),
        np.stack([constant[column] for column in answer], axis=1) if answer else None,
        constant[split] if split else None,
    )


def _moments(table: Table, column: str) -> NDArray[Any]:
    try:
        table.columns[column].astype(np.float64)
    except (ValueError, TypeError):
        return table.names(column)
    return table.numbers(column)


def _constant(table: Table, column: str, which: NDArray[np.int64], first: NDArray[np.int64]) -> NDArray[np.str_]:
    """The value of a column for each series."""
    values = table.names(column)
    wrong = np.flatnonzero(values != values[first][which])
    if len(wrong):
        row = wrong[0]
        before = values[first][which[row]]
        raise ValueError(
            f"{table.place(row, column)}: must be the same in a whole series, got {values[row]!r} after {before!r}"
        )
    return values[first]
