"""Series of values, of unequal lengths, with or without a target each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellisnet.data.sequences.data import SeriesForm
from trellisnet.data.sequences.filling import MASKED, fill_missing
from trellisnet.data.sequences.tables import FILL_HINT, Dialect, Table, read_table
from trellisnet.data.sequences.times import Step, find_step, read_times, slots

SPLITS = ("train", "valid", "test")
HELD_OUT = 0.1  # share of the series, or in forecasting of the steps, for validation; the same again for testing


@dataclass(frozen=True)
class Series:
    """Several series, concatenated.

    Attributes:
        path: the file, for errors.
        values: (total steps, channels); NaN where they are missing and masked.
        lengths: (series,), length of each series.
        names: names of the series.
        targets: (series, ...), labels or numbers as in the file, or (total steps,), a label per step; None: there are
            none.
        split: (series,), the split of each series; None: the file has none.
        step: time between two steps; None: the file has no times.
        note: what was filled.
    """

    path: Path
    values: NDArray[np.float64]
    lengths: NDArray[np.int64]
    names: Sequence[str]
    targets: NDArray[Any] | None = None
    split: NDArray[np.str_] | None = None
    step: Step | None = None
    note: str = ""

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def starts(self) -> NDArray[np.int64]:
        """First row of each series in `values`."""
        return np.cumsum(self.lengths) - self.lengths


def read_series(
    path: Path,
    form: SeriesForm,
    targets: Sequence[str] = (),
    split: str | None = None,
    ahead: int = 0,
    tag: str | None = None,
) -> Series:
    """Read a table, one row per step, and group its rows into series.

    Args:
        path: a `.csv` or `.parquet` file.
        form: its columns, and how it is read. Without `step`, the median time between two rows is the step.
        targets: columns of the targets; constant within a series.
        split: column of the splits; constant within a series.
        ahead: the last steps of each series are to be forecast: there, only the columns `form.future` have values.
        tag: column of a label per step.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, a value or time is missing or malformed, a time occurs twice, times have gaps,
            or a target or split is not constant.
    """
    columns = [*form.values, *targets, *(name for name in (form.series, form.time, split, tag) if name is not None)]
    dialect = Dialect(form.separator, form.decimal, form.encoding)
    table = read_table(path, list(dict.fromkeys(columns)), dialect)
    matrix = np.stack([_numbers(table, column, form, ahead) for column in form.values], axis=1)
    labels = np.full(len(table), "") if form.series is None else table.names(form.series)
    names, first, which = np.unique(labels, return_index=True, return_inverse=True)
    appearance = np.argsort(first)  # series in the order of the file
    rank = np.empty(len(names), dtype=np.int64)
    rank[appearance] = np.arange(len(names))
    which = rank[which]
    of_series = targets if split is None else (*targets, split)
    constant = {column: _constant(table, column, which, first[appearance]) for column in of_series}
    order, step = np.argsort(which, kind="stable"), None
    slot = np.arange(len(order))
    if form.time is not None:
        order, slot, step = _in_time(table, form, which)
    repeated = len(table) - len(order)
    rows, lengths = _with_gaps(order, slot, which[order])
    values = np.where(rows[:, None] < 0, np.nan, matrix[rows])

    def place(step: int, channel: int) -> str:
        before = rows[: step + 1]
        return table.place(before[before >= 0][-1], form.values[channel])

    filled = _filled(values, lengths, form, place, ahead)
    found = np.stack([constant[column] for column in targets], axis=1) if targets else None
    if tag is not None:
        if (rows < 0).any():
            where = place(int(np.flatnonzero(rows < 0)[0]) - 1, 0)
            raise ValueError(
                f"{where}: a gap follows, and steps that are filled have no label: tagging needs equal steps"
            )
        found = table.names(tag)[rows]
    return Series(
        table.path,
        filled,
        lengths,
        names[appearance].tolist(),
        found,
        None if split is None else constant[split],
        step,
        filled_note(form.fill, int((rows < 0).sum()), int(np.isnan(matrix[order]).sum()), repeated),
    )


def _numbers(table: Table, column: str, form: SeriesForm, ahead: int) -> NDArray[np.float64]:
    return table.numbers(column, missing=form.fill is not None or (ahead > 0 and column not in form.future))


def _filled(
    values: NDArray[np.float64],
    lengths: NDArray[np.int64],
    form: SeriesForm,
    place: Callable[[int, int], str],
    ahead: int,
) -> NDArray[np.float64]:
    """Values without NaN, unless they are masked; those that are not known yet are 0."""
    if not ahead:
        return fill_missing(values, lengths, form.fill, place)
    known = np.array(form.known_ahead)
    others = np.setdiff1d(np.arange(values.shape[1]), known)
    ends = np.cumsum(lengths)
    if lengths.min() <= ahead:
        short = int(lengths.argmin())
        raise ValueError(
            f"{place(ends[short] - 1, 0)}: must be in a series of more than {ahead} rows, those to forecast"
        )
    past = np.flatnonzero(np.arange(len(values)) < np.repeat(ends - ahead, lengths))
    later = np.setdiff1d(np.arange(len(values)), past)
    for where, wrong, problem in (
        (later, ~np.isnan(values), f"must be empty in the last {ahead} rows of a series, those to forecast"),
        (past, np.isnan(values) & (form.fill is None), f"must be a finite number, got none; {FILL_HINT}"),
    ):
        found = np.argwhere(wrong[np.ix_(where, others)])
        if len(found):
            raise ValueError(f"{place(where[found[0][0]], others[found[0][1]])}: {problem}")
    filled = np.zeros_like(values)
    filled[:, known] = fill_missing(values[:, known], lengths, form.fill, lambda i, c: place(i, known[c]))
    filled[np.ix_(past, others)] = fill_missing(
        values[np.ix_(past, others)], lengths - ahead, form.fill, lambda i, c: place(past[i], others[c])
    )
    return filled


def _in_time(
    table: Table, form: SeriesForm, which: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], Step | None]:
    """The rows sorted by series and time, the step of each in its series, and the time between two steps."""
    assert form.time is not None
    times = read_times(table, form.time, form.time_format)
    order = np.lexsort((times.values, which))  # of rows with the same time, the last one of the file is last
    again = (np.diff(which[order]) == 0) & (np.diff(times.values[order]) == 0)
    if again.any() and form.fill is None:
        row = order[np.flatnonzero(again)[0] + 1]
        raise ValueError(
            f"{table.place(row, form.time)}: a series must have one row per time, got {table.columns[form.time][row]} "
            "twice; with fill, the last of such rows counts"
        )
    order = order[np.append(~again, True)]
    step = find_step(times, order, which) if form.step is None else Step(form.step, str(form.step_unit))
    if step is None:
        return order, np.zeros_like(order), None
    return order, slots(table, form.time, times, step, order, which, form.fill is not None), step


def _with_gaps(
    order: NDArray[np.int64], slot: NDArray[np.int64], which: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The row of each step of all series, -1 in gaps, and the lengths of the series."""
    starts = np.flatnonzero(np.diff(which, prepend=-1))
    ends = np.append(starts[1:], len(which)) - 1
    lengths = slot[ends] - slot[starts] + 1
    rows = np.full(lengths.sum(), -1)
    rows[slot - slot[starts][which] + (np.cumsum(lengths) - lengths)[which]] = order
    return rows, lengths


def filled_note(fill: str | None, steps: int, values: int, repeated: int) -> str:
    """What was filled, for the note of the dataset."""
    counts = {"missing steps": steps, "missing values": values}
    found = [f"{count:,} {what}" for what, count in counts.items() if count]
    how = fill if fill == MASKED else f"filled ({fill})"
    parts = [f"{' and '.join(found)} {how}"] if found else []
    return ", ".join(parts + ([f"{repeated:,} repeated times dropped"] if repeated else []))


def _constant(table: Table, column: str, which: NDArray[np.int64], first: NDArray[np.int64]) -> NDArray[np.str_]:
    """Return the value of a column for each series, which must be the same in all its rows."""
    values = table.names(column)
    wrong = np.flatnonzero(values != values[first][which])
    if len(wrong):
        row = wrong[0]
        before = values[first][which[row]]
        raise ValueError(
            f"{table.place(row, column)}: must be the same in a whole series, got {values[row]!r} after {before!r}; "
            "labels that change have the task tagging"
        )
    return values[first]
