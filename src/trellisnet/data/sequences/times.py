"""Times of the rows of a table: parsed, and placed on a regular grid."""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

import numpy as np
from numpy.typing import NDArray

from trellisnet.data.sequences.tables import Table

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)
ISO = re.compile(
    r"(\d{4})-(\d\d)(?:-(\d\d)(?:[T ](\d\d)(?::(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?)?)?)?(Z|[+-]\d\d(?::?\d\d)?)?"
)
JITTER = 0.1  # of a step: rounded stamps differ by less, and a missing row by more
SHORTEST_MONTH = 27 * 86_400.0  # seconds, less than 28 days for the sake of summer time
MOST_ADDED = 10  # steps per row of the file that filling may add; more is a wrong date


@dataclass(frozen=True)
class Step:
    """The time between two rows: a number of a unit, "numbers", "seconds" or "months"."""

    length: float
    unit: str

    def __str__(self) -> str:
        if self.unit == "numbers":
            return f"{self.length:.6g}"
        if self.unit == "months":
            return f"{self.length:g} months"
        for name, seconds in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
            if self.length >= seconds:
                return f"{self.length / seconds:.6g} {name}"
        return f"{self.length:.6g} seconds"


@dataclass(frozen=True)
class Times:
    """A column of times: numbers, or seconds since 1970 if they are dates."""

    values: NDArray[np.float64]
    are_dates: bool


def read_times(table: Table, column: str, time_format: str | None) -> Times:
    """Parse a column of numbers or of ISO dates and times, or as `time_format` says, the codes of `strptime`.

    Times with an offset are converted to UTC. In a table without `time_format`, all times have the form of the first.

    Raises:
        ValueError: a value has no such form, or some times have an offset and others not.
    """
    cells = table.columns[column]
    if np.issubdtype(cells.dtype, np.datetime64):
        if time_format is not None:
            raise ValueError(f"time_format belongs to times as text, got {time_format!r} for {table.place(0, column)}")
        wrong = np.flatnonzero(np.isnat(cells))
        if len(wrong):
            raise ValueError(f"{table.place(wrong[0], column)}: must be a time, got none")
        return Times(cells.astype("datetime64[us]").astype(np.int64) / 1e6, True)
    if time_format is None and table.is_number(column, 0):
        return Times(table.numbers(column), False)
    parse: Callable[[str], datetime] = _iso
    expected = "an ISO date or time, such as 2024-01-31 or 2024-01-31T12:00, or a number"
    advice = "; time_format, such as %d.%m.%Y, reads others"
    if time_format is not None:
        parse, expected, advice = lambda text: datetime.strptime(text, time_format), f"a time {time_format!r}", ""
    values, offsets = np.empty(len(cells)), np.empty(len(cells), dtype=bool)
    for row, cell in enumerate(cells):
        try:
            moment = parse(cell if isinstance(cell, str) else str(cell))
        except ValueError:
            raise ValueError(f"{table.place(row, column)}: must be {expected}, got {cell!r}{advice}") from None
        offsets[row] = moment.tzinfo is not None
        if offsets[row] != offsets[0]:
            raise ValueError(
                f"{table.place(row, column)}: must have an offset from UTC as all times or none, got {cell!r}"
            )
        values[row] = ((moment if offsets[row] else moment.replace(tzinfo=timezone.utc)) - EPOCH) / SECOND
    return Times(values, True)


def _iso(text: str) -> datetime:
    found = ISO.fullmatch(text.strip())
    if found is None:
        raise ValueError
    *numbers, fraction, offset = found.groups()
    year, month, day, hour, minute, second = (
        default if part is None else int(part) for part, default in zip(numbers, (0, 0, 1, 0, 0, 0), strict=True)
    )
    microsecond = int((fraction or "0")[:6].ljust(6, "0"))
    zone = None
    if offset == "Z":
        zone = timezone.utc
    elif offset is not None:
        digits = offset[1:].replace(":", "").ljust(4, "0")
        ahead = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
        zone = timezone(-ahead if offset[0] == "-" else ahead)
    return datetime(year, month, day, hour, minute, second, microsecond, tzinfo=zone)


def find_step(times: Times, order: NDArray[np.int64], which: NDArray[np.int64]) -> Step | None:
    """The median time between the rows of a series; None if there are no two rows of one.

    Args:
        times: of all rows.
        order: the rows, sorted by series and time.
        which: the series of each row.
    """
    values, unit = _in_units(times, None, "")
    ahead, inside = np.diff(values[order]), which[order][1:] == which[order][:-1]
    ahead = ahead[inside & (ahead > 0)]
    if not len(ahead):
        return None
    median = np.sort(ahead)[(len(ahead) - 1) // 2]
    return Step(float(ahead[np.abs(ahead - median) <= JITTER * median].mean()), unit)


def slots(
    table: Table, column: str, times: Times, step: Step, order: NDArray[np.int64], which: NDArray[np.int64], fills: bool
) -> NDArray[np.int64]:
    """The number of steps from the first row of its series to each row, sorted by series and time.

    Args:
        table: the file, for errors.
        column: its column of times.
        times: of all rows.
        step: time between two rows.
        order: the rows, sorted by series and time; no time occurs twice in a series.
        which: the series of each row.
        fills: whether gaps are allowed, because they are filled.

    Raises:
        ValueError: a time is not on the grid, there is a gap and gaps are not allowed, or a gap is absurdly long.
    """
    values, _ = _in_units(times, step, f"{table.path}: column {column!r}")
    starts = np.flatnonzero(np.diff(which[order], prepend=-1))
    ahead = np.diff(values[order], prepend=0.0) / step.length
    ahead[starts] = 1
    whole = np.rint(ahead).astype(np.int64)

    def refuse(at: int, problem: str) -> None:
        now, before = (table.columns[column][order[row]] for row in (at, at - 1))
        raise ValueError(f"{table.place(order[at], column)}: {now} follows {before}, {problem}")

    uneven = np.flatnonzero((np.abs(ahead - whole) > JITTER) | (whole < 1))
    if len(uneven):
        refuse(uneven[0], f"not a whole number of steps of {step}; without time, rows keep the order of the file")
    gaps = np.flatnonzero(whole > 1)
    if len(gaps) and not fills:
        refuse(gaps[0], f"a gap, for steps are of {step}; fill = forward, linear, zero or masked accepts gaps")
    whole[starts] = 0
    if whole.sum() > (MOST_ADDED + 1) * len(whole):
        longest = int(whole.argmax())
        refuse(longest, f"{whole[longest]:,} steps of {step}, too many to fill in a file of {len(whole):,} rows")
    total = np.cumsum(whole)
    return total - np.repeat(total[starts], np.diff(starts, append=len(whole)))


def _in_units(times: Times, step: Step | None, where: str) -> tuple[NDArray[np.float64], str]:
    """The times in the unit of the step; None: in months if all are the same day of a month, or its last one."""
    if not times.are_dates:
        if step is not None and step.unit != "numbers":
            raise ValueError(f"{where}: must be dates, in steps of {step}, got numbers")
        return times.values, "numbers"
    if step is not None and step.unit == "numbers":
        raise ValueError(f"{where}: must be numbers, in steps of {step}, got dates")
    if step is None or step.unit == "months":
        months = _months(times.values)
        if months is not None:
            return months, "months"
        if step is not None:
            raise ValueError(f"{where}: must be the same day of each month, in steps of {step}")
    return times.values, "seconds"


def _months(seconds: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Months since the year 0, if all times are the same moment of a month, which its last day is too."""
    ahead = np.diff(np.unique(seconds))
    if len(ahead) and ahead.min() < SHORTEST_MONTH:
        return None
    moments = [EPOCH + timedelta(seconds=value) for value in seconds.tolist()]
    day = max((moment.day for moment in moments), default=1)
    ends = [calendar.monthrange(moment.year, moment.month)[1] for moment in moments]
    same_day = all(moment.day == min(day, end) for moment, end in zip(moments, ends, strict=True))
    if not same_day or len({moment.time() for moment in moments}) != 1:
        return None
    return np.array([12.0 * moment.year + moment.month for moment in moments])
