"""Read tables with named columns from CSV and Parquet files."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellisnet.core.checks import one_of
from trellisnet.data.checks import check_file
from trellisnet.data.files.columns import require_pyarrow

SUFFIXES = (".csv", ".parquet")
MISSING = ("", "na", "n/a", "nan", "null", "none")  # in lower case
FILL_HINT = "fill = forward, linear, zero or masked accepts missing values"


@dataclass(frozen=True)
class Dialect:
    """How a CSV file is written.

    Args:
        separator: character between fields, or "tab"; default ",".
        decimal: "." (default) or ",".
        encoding: name of an encoding that Python knows; default "utf-8".

    Raises:
        ValueError: an option is not one of these, or separator and decimal are the same.
    """

    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        given = self.separator
        if given is not None and given != "tab" and (not isinstance(given, str) or len(given) != 1 or given in '"\r\n'):
            raise ValueError(f"separator must be one character, not a quote or line end, or 'tab', got {given!r}")
        one_of("decimal", self.point, (".", ","))
        if self.between == self.point:
            raise ValueError(f"separator and decimal must differ, got {self.between!r} for both")
        try:
            io.TextIOWrapper(io.BytesIO(), encoding=self.coding)
        except (LookupError, TypeError):
            raise ValueError(
                f"encoding must be one that Python knows, such as latin-1, got {self.encoding!r}"
            ) from None

    @property
    def between(self) -> str:
        """The character between fields."""
        return {None: ",", "tab": "\t"}.get(self.separator) or str(self.separator)

    @property
    def point(self) -> str:
        """The character before decimals."""
        return "." if self.decimal is None else self.decimal

    @property
    def coding(self) -> str:
        """The encoding; that of UTF-8 accepts a byte order mark."""
        named = "utf-8" if self.encoding is None else self.encoding
        return "utf-8-sig" if isinstance(named, str) and named.lower() in ("utf-8", "utf8") else named

    def __str__(self) -> str:
        return f"separator {self.between!r}, decimal {self.point!r}, encoding {self.encoding or 'utf-8'!r}"


@dataclass(frozen=True)
class Table:
    """Some columns of a file, with one row per step.

    Attributes:
        path: the file, for errors.
        columns: the columns by name, all of the same length.
        places: number of each row in errors: the line of a CSV file, counted from 1, or the row of a Parquet file,
            counted from 0.
        dialect: how numbers are written.
    """

    path: Path
    columns: dict[str, NDArray[Any]]
    places: NDArray[np.int64]
    dialect: Dialect = Dialect()

    def __len__(self) -> int:
        return len(self.places)

    def place(self, row: int, column: str) -> str:
        """Describe the position of a value in the file, for errors."""
        unit = "line" if self.path.suffix == ".csv" else "row"
        return f"{self.path}: column {column!r}, {unit} {self.places[row]:,}"

    def numbers(self, column: str, missing: bool = False) -> NDArray[np.float64]:
        """Return a column as finite numbers, and NaN for missing values if these are allowed.

        Raises:
            ValueError: a value is not a finite number.
        """
        values = self.columns[column]
        if values.dtype.kind not in "biufOU":
            raise ValueError(f"{self.place(0, column)}: must be a number, got {values[0]}")
        numbers = np.empty(len(values))
        if values.dtype.kind in "biuf":
            numbers[:] = values
        for row, value in enumerate(values if values.dtype.kind in "OU" else ()):
            try:
                numbers[row] = self._number(value)
            except (TypeError, ValueError):
                place = self.place(row, column)
                raise ValueError(f"{place}: must be a number, got {value!r}{self._advice(value)}") from None
        wrong = np.flatnonzero(np.isinf(numbers) if missing else ~np.isfinite(numbers))
        if len(wrong):
            row = wrong[0]
            value = repr(values[row]) if isinstance(values[row], str) else values[row]
            advice = "" if np.isinf(numbers[row]) else f"; {FILL_HINT}"
            raise ValueError(f"{self.place(row, column)}: must be a finite number, got {value}{advice}")
        return numbers

    def is_number(self, column: str, row: int) -> bool:
        """Whether a value is a number, which it is not if it is missing."""
        try:
            return not np.isnan(self._number(self.columns[column][row]))
        except (TypeError, ValueError):
            return False

    def names(self, column: str) -> NDArray[np.str_]:
        """Return a column as text.

        Raises:
            ValueError: a value is empty.
        """
        values = self.columns[column]
        for row, value in enumerate(values):
            if value is None or value == "" or value != value:  # noqa: PLR0124  # NaN
                raise ValueError(f"{self.place(row, column)}: must not be empty")
        return values.astype(str)

    def _number(self, value: Any) -> float:
        """A number, or NaN if the value is missing; a ValueError or TypeError if it is neither."""
        if value is None:
            return np.nan
        if not isinstance(value, str):
            return float(value)
        if value.strip().lower() in MISSING:
            return np.nan
        if self.dialect.point == ",":
            if "." in value:
                raise ValueError  # 1.234 would be a thousand times as large
            value = value.replace(",", ".")
        return float(value)

    def _advice(self, value: Any) -> str:
        """What to do about text that is a number with the other decimal character."""
        point = self.dialect.point
        other = "," if point == "." else "."
        if not isinstance(value, str) or other not in value or point in value:
            return ""
        return f"; decimal is {point!r}, and decimal = {other!r} reads such numbers"


def read_table(path: Path, columns: Sequence[str], dialect: Dialect | None = None) -> Table:
    """Read the named columns of a `.csv` file, which has a header line, or of a `.parquet` file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged or empty, a column is missing, or a Parquet file is to be read with a dialect.
    """
    check_file(path)
    dialect = Dialect() if dialect is None else dialect
    if path.suffix == ".csv":
        table = _read_csv(path, columns, dialect)
    elif dialect != Dialect():
        raise ValueError(f"separator, decimal and encoding belong to CSV files, got {dialect} for {path}")
    else:
        table = _read_parquet(path, columns)
    if len(table) == 0:
        raise ValueError(f"{path}: has no rows")
    return table


def _read_csv(path: Path, columns: Sequence[str], dialect: Dialect) -> Table:
    rows, lines, first = [], [], 1
    with path.open(encoding=dialect.coding, newline="") as file:
        reader = csv.reader(file, delimiter=dialect.between)
        try:
            header = next(reader, [])
            wanted = [_position(path, header, column, f" (read with {dialect})") for column in columns]
            first = reader.line_num + 1
            for row in reader:
                if row and len(row) != len(header):
                    raise ValueError(
                        f"{path}: line {first:,} must have {len(header)} fields, got {len(row)} (read with {dialect})"
                    )
                if row:
                    rows.append([row[position] for position in wanted])
                    lines.append(first)
                first = reader.line_num + 1
        except UnicodeError as error:
            named = "UTF-8" if dialect.encoding is None else dialect.encoding
            raise ValueError(
                f"{path}: must be {named}, but is not from line {first:,} on: {error}; the option encoding, such as "
                "latin-1, reads others"
            ) from None
        except csv.Error as error:
            raise ValueError(f"{path}: line {first:,}: {error} (read with {dialect})") from error
    cells = np.array(rows, dtype=object).reshape(len(rows), len(columns))
    return Table(path, {column: cells[:, i] for i, column in enumerate(columns)}, np.array(lines, np.int64), dialect)


def _read_parquet(path: Path, columns: Sequence[str]) -> Table:
    arrow, parquet = require_pyarrow()
    try:
        file = parquet.ParquetFile(path)
    except arrow.ArrowException as error:
        raise ValueError(f"{path}: not a Parquet file: {error}") from error
    with file:
        for column in columns:
            _position(path, file.schema_arrow.names, column)
        table = file.read(columns=list(columns))
    return Table(path, {column: table[column].to_numpy() for column in columns}, np.arange(table.num_rows))


def _position(path: Path, header: Sequence[str], column: str, how: str = "") -> int:
    if column not in header:
        raise ValueError(f"{path}: must have a column {column!r}, got {', '.join(map(repr, header))}{how}")
    if list(header).count(column) > 1:
        raise ValueError(f"{path}: must have one column {column!r}, got {list(header).count(column)}")
    return list(header).index(column)
