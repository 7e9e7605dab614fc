"""Results as files: columns of equal length as CSV, Parquet or JSON lines."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trellisnet.extras import require
from trellisnet.files import replacing

Columns = Mapping[str, Sequence[Any]]
DIGITS = 9  # significant ones: as many as tell two numbers of a model apart


def check_output(path: Path) -> None:
    """Raise an error if results cannot be written there: nothing is ever overwritten."""
    if path.suffix not in WRITERS:
        raise ValueError(f"{path}: must end in {', '.join(WRITERS)}")
    if path.exists():
        raise FileExistsError(f"{path} exists already: choose another name, or remove it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: the folder {path.parent} does not exist")
    if path.suffix == ".parquet":
        require_pyarrow()


def write_columns(path: Path, columns: Columns) -> None:
    """Write a file as its ending says, `.csv`, `.parquet` or `.jsonl`: all of it or nothing."""
    check_output(path)
    with replacing(path) as (file,):
        WRITERS[path.suffix](file, columns)


def _write_csv(file: Path, columns: Columns) -> None:
    with file.open("w", encoding="utf-8", newline="") as opened:
        table = csv.writer(opened)
        table.writerow(columns)
        table.writerows([_plain(value) for value in row] for row in zip(*columns.values(), strict=True))


def _write_lines(file: Path, columns: Columns) -> None:
    with file.open("w", encoding="utf-8") as opened:
        for row in zip(*columns.values(), strict=True):
            values = dict(zip(columns, map(_plain, row), strict=True))
            opened.write(json.dumps(values, ensure_ascii=False, allow_nan=False) + "\n")


def _write_parquet(file: Path, columns: Columns) -> None:
    arrow, parquet = require_pyarrow()
    parquet.write_table(arrow.table({name: list(values) for name, values in columns.items()}), file)


def _plain(value: Any) -> Any:
    """A number without digits that mean nothing; None for what is no number."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def require_pyarrow() -> tuple[Any, Any]:
    """Import and return `pyarrow` and `pyarrow.parquet`; an ImportError names the extra."""
    arrow, parquet = (require(module, "tables", "Parquet files") for module in ("pyarrow", "pyarrow.parquet"))
    return arrow, parquet


WRITERS: dict[str, Callable[[Path, Columns], None]] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
    ".jsonl": _write_lines,
}
