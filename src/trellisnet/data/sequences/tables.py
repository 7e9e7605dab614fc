"""Read tables with named columns from CSV and Parquet files."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellisnet.data.checks import check_file

SUFFIXES = (".csv", ".parquet")


@dataclass(frozen=True)
class Table:
    """Some columns of a file, with one row per step.

    Attributes:
        path: the file, for errors.
        columns: the columns by name, all of the same length.
        first_row: number of the first row in errors: line 2 of a CSV file, row 0 of a Parquet file.
    """

    path: Path
    columns: dict[str, NDArray[Any]]
    first_row: int

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def place(self, row: int, column: str) -> str:
        """Describe the position of a value in the file, for errors."""
        unit = "line" if self.path.suffix == ".csv" else "row"
        return f"{self.path}: column {column!r}, {unit} {row + self.first_row:,}"

    def numbers(self, column: str) -> NDArray[np.float64]:
        """Return a column as finite numbers.

        Raises:
            ValueError: a value is not a finite number.
        """
        values = self.columns[column]
        try:
            numbers = values.astype(np.float64)
        except (ValueError, TypeError):
            row = next(row for row, value in enumerate(values) if not _is_number(value))
            raise ValueError(f"{self.place(row, column)}: must be a number, got {values[row]!r}") from None
        wrong = np.flatnonzero(~np.isfinite(numbers))
        if len(wrong):
            raise ValueError(f"{self.place(wrong[0], column)}: must be a finite number, got {numbers[wrong[0]]}")
        return numbers

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


def read_table(path: Path, columns: Sequence[str]) -> Table:
    """Read the named columns of a `.csv` (comma separated, with a header line, UTF-8) or `.parquet` file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged or empty, or a column is missing.
    """
    check_file(path)
    table = _read_csv(path, columns) if path.suffix == ".csv" else _read_parquet(path, columns)
    if len(table) == 0:
        raise ValueError(f"{path}: has no rows")
    return table


def _read_csv(path: Path, columns: Sequence[str]) -> Table:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file)
        try:
            header = next(reader, [])
            wanted = [_position(path, header, column) for column in columns]
            rows = []
            for row in reader:
                if row and len(row) != len(header):
                    raise ValueError(f"{path}: line {reader.line_num:,} must have {len(header)} fields, got {len(row)}")
                if row:
                    rows.append([row[position] for position in wanted])
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: must be UTF-8, but is not after line {reader.line_num:,}: {error}") from None
        except csv.Error as error:
            raise ValueError(f"{path}: line {reader.line_num:,}: {error}") from error
    cells = np.array(rows, dtype=object).reshape(len(rows), len(columns))
    return Table(path, {column: cells[:, i] for i, column in enumerate(columns)}, first_row=2)


def _read_parquet(path: Path, columns: Sequence[str]) -> Table:
    try:
        import pyarrow  # noqa: PLC0415
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError as error:
        raise ImportError("Parquet files need the pyarrow package, of the extra 'tables'") from error
    try:
        file = pyarrow.parquet.ParquetFile(path)
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path}: not a Parquet file: {error}") from error
    with file:
        for column in columns:
            _position(path, file.schema_arrow.names, column)
        table = file.read(columns=list(columns))
    return Table(path, {column: table[column].to_numpy() for column in columns}, first_row=0)


def _position(path: Path, header: Sequence[str], column: str) -> int:
    if column not in header:
        raise ValueError(f"{path}: must have a column {column!r}, got {', '.join(map(repr, header))}")
    return list(header).index(column)


def _is_number(value: object) -> bool:
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True
