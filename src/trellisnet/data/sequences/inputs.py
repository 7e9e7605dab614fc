"""Sequences to predict something of, in the form of those that a model was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellisnet.data.sequences.arrays import SUFFIXES as ARRAY_SUFFIXES
from trellisnet.data.sequences.arrays import read_arrays
from trellisnet.data.sequences.data import SequenceData, SeriesForm
from trellisnet.data.sequences.filling import with_marks
from trellisnet.data.sequences.forecasting import read_window
from trellisnet.data.sequences.given import read_sequences
from trellisnet.data.sequences.series import Series, read_series
from trellisnet.data.sequences.tables import SUFFIXES as TABLE_SUFFIXES
from trellisnet.data.sequences.tables import Dialect, read_table
from trellisnet.data.sequences.ts import SUFFIX as TS_SUFFIX
from trellisnet.data.sequences.ts import read_ts


def read_inputs(data: SequenceData, inputs: Any) -> tuple[list[str], list[NDArray[np.float32]]]:
    """Names of sequences, and their values (T, C) as the model reads them.

    Args:
        data: what was trained on; its sequences are not needed.
        inputs: the path of a file that is read like the one of `data`, or arrays as `from_arrays` takes them. If
            columns are known ahead, the last `horizon` steps are those to forecast, where only these columns are read.
    """
    if isinstance(inputs, (str, Path)):
        series = _read_file(data, Path(inputs).expanduser())
        where, names = str(series.path), list(series.names)
        rows = np.split(series.values, series.lengths.cumsum()[:-1])
    else:
        where, given = "inputs", read_sequences("inputs", inputs, data.form.masked)
        rows = [row.astype(np.float64) for row in given]
        names = [str(i) for i in range(len(rows))]
    channels, form = rows[0].shape[1], data.form
    if channels != data.channels:
        raise ValueError(f"{where}: must have {data.channels} channels, as what was trained on, got {channels}")
    if form.window is not None:
        needed, least = form.window, f"window = {form.window}"
        if form.future:
            needed, least = form.window + _ahead(form), f"{least} and horizon = {form.horizon}"
        for name, row in zip(names, rows, strict=True):
            if len(row) < needed:
                raise ValueError(f"{where}: series {name!r} must have at least {least} steps, got {len(row)}")
        rows = [read_window(row[-needed:], form) for row in rows]
    scale = data.input_scale
    read = [row.astype(np.float32) if scale is None else scale.apply(row) for row in rows]
    return names, [with_marks(row) for row in read] if form.masked else read


def _read_file(data: SequenceData, path: Path) -> Series:
    """The series of a file, without what is to be predicted."""
    form = data.form
    if path.suffix in ARRAY_SUFFIXES:
        return read_arrays(path, None, form.fill)
    if path.suffix == TS_SUFFIX:
        return read_ts(path)
    if not form.values or path.suffix not in TABLE_SUFFIXES:
        endings = (*(TABLE_SUFFIXES if form.values else ()), *ARRAY_SUFFIXES, TS_SUFFIX)
        raise ValueError(f"{path}: must end in {', '.join(endings)}, as what was trained on")
    if path.suffix != ".csv":  # numbers have a type there
        form = replace(form, separator=None, decimal=None, encoding=None)
    series = read_series(path, form, ahead=_ahead(form))
    if form.label is not None:
        _check_known(path, form, data.labels)
    return series


def _check_known(path: Path, form: SeriesForm, labels: Sequence[str]) -> None:
    """Raise a ValueError if a file has the column of labels, which it need not have, and an unknown label in it."""
    assert form.label is not None
    try:
        table = read_table(path, [form.label], Dialect(form.separator, form.decimal, form.encoding))
    except ValueError:  # no such column: the others have been read
        return
    for row, value in enumerate(table.columns[form.label]):
        missing = value is None or value == "" or value != value  # noqa: PLR0124  # NaN
        if not missing and str(value) not in labels:
            place = table.place(row, form.label)
            raise ValueError(f"{place}: label {str(value)!r} is not one of the training: {', '.join(labels)}")


def _ahead(form: SeriesForm) -> int:
    """The number of steps at the end of each series that are to be forecast, of which something is known."""
    return (form.horizon or 0) if form.future else 0
