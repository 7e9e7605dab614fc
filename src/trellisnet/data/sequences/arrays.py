"""Read series from NumPy files."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellisnet.data.checks import check_file
from trellisnet.data.sequences.filling import fill_missing
from trellisnet.data.sequences.series import Series, filled_note
from trellisnet.data.sequences.tables import FILL_HINT

SUFFIXES = (".npy", ".npz")


def read_arrays(path: Path, targets: str | None, fill: str | None = None, each_step: bool = False) -> Series:
    """Read the series of a `.npy` or `.npz` file.

    A `.npy` file has values (series, steps, channels), or (series, steps) with one channel. A `.npz` file has them in
    the array `values`. For series of unequal lengths, `values` has the steps of all series in sequence, (steps,
    channels) or (steps,), and the array `lengths` has the length of each series.

    Args:
        path: the file.
        targets: name of the array of targets, with one row per series: "label" or "target"; None: there is none.
        each_step: the targets have one entry per step, in the form of `values` without channels.
        fill: how to fill NaN in `values`, see `fill_missing`; None: NaN is an error.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, or an array is missing or has a wrong shape or value.
    """
    arrays = _read(path)
    if "values" not in arrays:
        raise ValueError(f"{path}: must have an array 'values', got {', '.join(map(repr, arrays))}")
    values = arrays["values"]
    if not np.issubdtype(values.dtype, np.number) or np.issubdtype(values.dtype, np.complexfloating):
        raise ValueError(f"{path}: 'values' must be numbers, got {values.dtype}")
    if "lengths" in arrays:
        lengths = arrays["lengths"].astype(np.int64)
        if lengths.ndim != 1 or values.ndim not in (1, 2) or lengths.sum() != len(values) or lengths.min(initial=1) < 1:
            raise ValueError(
                f"{path}: 'lengths' must be of at least 1 and add up to the {len(values):,} steps of 'values' "
                f"(steps, channels), got {lengths.sum():,} and shape {values.shape}"
            )
    elif values.ndim in (2, 3):
        lengths = np.full(len(values), values.shape[1], dtype=np.int64)
        values = values.reshape(-1, *values.shape[2:])
    else:
        raise ValueError(f"{path}: 'values' must be (series, steps) or (series, steps, channels), got {values.shape}")
    if len(values) == 0:
        raise ValueError(f"{path}: has no values")
    values = values.reshape(len(values), -1)
    values = values.astype(np.float64)

    def place(step: int, channel: int) -> str:
        series = int(np.searchsorted(lengths.cumsum(), step, side="right"))
        return f"{path}: 'values', series {series:,}, step {step - lengths[:series].sum():,}, channel {channel}"

    missing = int(np.isnan(values).sum())
    wrong = np.argwhere(~np.isfinite(values) if fill is None else np.isinf(values))
    if len(wrong):
        where = place(*wrong[0])
        raise ValueError(
            f"{where}: must be a finite number, got {values[tuple(wrong[0])]}{f'; {FILL_HINT}' if missing else ''}"
        )
    values = fill_missing(values, lengths, fill, place)
    found = None
    if targets is not None:
        shape = arrays["values"].shape[: 1 if "lengths" in arrays else 2] if each_step else lengths.shape
        found = _with_shape(path, arrays, targets, shape)
        found = found.reshape(-1) if each_step else found
    split = _with_shape(path, arrays, "split", lengths.shape).astype(str) if "split" in arrays else None
    names = [str(number) for number in range(len(lengths))]
    note = filled_note(fill, 0, missing, 0)
    return Series(path, values, lengths, names, found, split, note=note)


def _read(path: Path) -> dict[str, NDArray[Any]]:
    check_file(path)
    try:
        with path.open("rb") as file:
            content = np.load(file, allow_pickle=False)
            return {"values": content} if isinstance(content, np.ndarray) else dict(content)
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: not a NumPy file of plain arrays: {error}") from error


def _with_shape(path: Path, arrays: dict[str, NDArray[Any]], name: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return an array that must begin with the dimensions `shape`: one row per series, or one entry per step."""
    if name not in arrays:
        raise ValueError(f"{path}: must have an array {name!r}, got {', '.join(map(repr, arrays))}")
    if arrays[name].shape[: len(shape)] != shape:
        rows = f"{shape[0]:,} rows, one per series" if len(shape) == 1 else f"the shape {shape}, a label per step"
        raise ValueError(f"{path}: {name!r} must have {rows}, got shape {arrays[name].shape}")
    return arrays[name]
