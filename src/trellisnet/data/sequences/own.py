"""The user's own series: classification, regression and forecasting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellisnet.core.checks import boolean, one_of, positive_int
from trellisnet.data.batches import Items
from trellisnet.data.sequences.arrays import SUFFIXES as ARRAY_SUFFIXES
from trellisnet.data.sequences.arrays import read_arrays
from trellisnet.data.sequences.binary import check_labels
from trellisnet.data.sequences.data import Scale, SequenceData, SeriesForm
from trellisnet.data.sequences.series import SPLITS, Series, group
from trellisnet.data.sequences.tables import SUFFIXES as TABLE_SUFFIXES
from trellisnet.data.sequences.tables import read_table

HELD_OUT = 0.1  # share of the series, or in forecasting of the steps, for validation; the same again for testing
TASKS = ("classification", "regression", "forecasting")
BELONGS_TO = {
    "label": ("classification",),
    "classes": ("classification",),
    "targets": ("regression",),
    "split": ("classification", "regression"),
    "window": ("forecasting",),
    "horizon": ("forecasting",),
}
NEEDED = {  # columns of a table
    "classification": ("values", "label", "series"),
    "regression": ("values", "targets", "series"),
    "forecasting": ("values",),
}


class SeriesItems(Items):
    """Whole series and their targets."""

    lengths: NDArray[np.int64]

    def __init__(self, series: Series, values: NDArray[np.float32], targets: NDArray[Any], which: NDArray[np.int64]):
        self.values, self.targets = values, targets[which]
        self.starts, self.lengths = series.starts[which], series.lengths[which]

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, indices: NDArray[np.int64], steps: int | None = None) -> tuple[NDArray[np.float32], NDArray[Any]]:
        """Return values (B, steps, C), zero after the end of a series, and labels (B,) or numbers (B, D)."""
        assert steps is not None
        inputs = np.zeros((len(indices), steps, self.values.shape[1]), dtype=np.float32)
        for row, index in enumerate(indices.tolist()):
            start, length = self.starts[index], self.lengths[index]
            inputs[row, :length] = self.values[start : start + length]
        return inputs, self.targets[indices]


class WindowItems(Items):
    """Windows of series, and the `horizon` steps after each."""

    def __init__(self, values: NDArray[np.float32], starts: NDArray[np.int64], window: int, horizon: int) -> None:
        self.values, self.starts, self.window, self.horizon = values, starts, window, horizon

    def __len__(self) -> int:
        return len(self.starts)

    def take(
        self, indices: NDArray[np.int64], steps: int | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return values (B, window, C) and the values of the next steps (B, horizon * C), step by step."""
        rows = self.starts[indices][:, None] + np.arange(self.window + self.horizon)
        both = self.values[rows]
        return both[:, : self.window], both[:, self.window :].reshape(len(indices), -1)


def load_series(
    path: str | Path,
    task: str,
    *,
    values: Sequence[str] | None = None,
    label: str | None = None,
    targets: Sequence[str] | None = None,
    series: str | None = None,
    time: str | None = None,
    split: str | None = None,
    classes: int | None = None,
    window: int | None = None,
    horizon: int | None = None,
    standardise: bool = True,
) -> SequenceData:
    """Load series from a `.csv` or `.parquet` file with one row per step, or a `.npy` or `.npz` file (`read_arrays`).

    In forecasting, the last tenth of each series is for testing and the tenth before it for validation: windows of
    these splits predict values in their tenth, and may read earlier values. In the other tasks, whole series are
    assigned to the splits at random, always in the same way, unless the file has a column or array of splits.

    Args:
        path: the file.
        task: "classification", "regression" or "forecasting".
        values: columns of the input channels; a NumPy file has the array `values`.
        label: for "classification": column of the class; a NumPy file has the array `label`.
        targets: for "regression": columns of the numbers to predict; a NumPy file has the array `target`.
        series: column of the name of the series of each row; not needed in forecasting if there is only one series.
        time: column to sort the rows of a series by; default their order in the file.
        split: for "classification" and "regression": column with "train", "valid" or "test"; a NumPy file may have the
            array `split`.
        classes: for "classification": number of classes; labels are then integers below it. Default: the labels in the
            file, sorted.
        window: for "forecasting": number of steps to read.
        horizon: for "forecasting": number of steps to predict; default 1.
        standardise: scale every input channel and every number to predict to mean 0 and deviation 1 in the training
            split.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: an option does not fit the task or the file, or the file has bad values.
    """
    path = Path(path).expanduser()
    one_of("task", task, TASKS)
    boolean("standardise", standardise)
    values, targets = ([names] if isinstance(names, str) else names for names in (values, targets))
    columns = {"values": values, "label": label, "targets": targets, "series": series, "time": time, "split": split}
    for name, given in {**columns, "classes": classes, "window": window, "horizon": horizon}.items():
        if given is not None and task not in BELONGS_TO.get(name, TASKS):
            raise ValueError(f"{name} belongs to {' and '.join(BELONGS_TO[name])}, got {given!r} for {task}")
    if path.suffix in ARRAY_SUFFIXES:
        for name, given in columns.items():
            if given is not None:
                raise ValueError(f"{name} names columns of a table, got {given!r}; {path} has arrays with fixed names")
        read = read_arrays(path, {"classification": "label", "regression": "target"}.get(task))
    elif path.suffix in TABLE_SUFFIXES:
        for name in NEEDED[task]:
            if columns[name] is None:
                raise ValueError(f"{name} must name columns of {path} for {task}, got None")
        target_columns = [label] if label is not None else list(targets or ())
        needed = [*(values or ()), *target_columns, *(name for name in (series, time, split) if name)]
        read = group(read_table(path, list(dict.fromkeys(needed))), values or (), target_columns, series, time, split)
    else:
        raise ValueError(f"{path}: must end in {', '.join((*ARRAY_SUFFIXES, *TABLE_SUFFIXES))}")
    if task == "forecasting":
        ahead = 1 if horizon is None else positive_int("horizon", horizon)
        form = SeriesForm(tuple(values or ()), (), series, time, positive_int("window", window), ahead)
        return replace(_forecasting(read, positive_int("window", window), ahead, standardise), form=form)
    form = SeriesForm(tuple(values or ()), tuple(targets or ()), series, time)
    return replace(_whole_series(read, task, classes, standardise), form=form)


def _whole_series(series: Series, task: str, classes: int | None, standardise: bool) -> SequenceData:
    """Return a dataset with one target per series."""
    which = _assign_splits(series)
    values, scale = _standardised(series, which["train"], standardise)
    targets: NDArray[Any]
    labels: tuple[str, ...] = ()
    target_scale = None
    if task == "classification":
        targets, labels = _labels(series, classes)
        size = len(labels)
    else:
        numbers = _target_numbers(series)
        size = numbers.shape[1]
        target_scale = Scale.of(numbers[which["train"]]) if standardise else None
        targets = numbers.astype(np.float32) if target_scale is None else target_scale.apply(numbers)
    splits = {name: SeriesItems(series, values, targets, rows) for name, rows in which.items() if len(rows)}
    note = "own series" + (", standardised" if standardise else "")
    return SequenceData(series.path.name, task, values.shape[1], size, splits, note, labels, scale, target_scale)


def _forecasting(series: Series, window: int, horizon: int, standardise: bool) -> SequenceData:
    """Return a dataset of windows and the steps after them."""
    found: dict[str, list[NDArray[np.int64]]] = {name: [] for name in SPLITS}
    training = np.zeros(len(series.values), dtype=bool)
    for start, length in zip(series.starts.tolist(), series.lengths.tolist(), strict=True):
        held = int(length * HELD_OUT)
        ends = (0, length - 2 * held, length - held, length)  # a split predicts values between two consecutive ends
        training[start : start + ends[1]] = True
        for name, first, end in zip(SPLITS, ends[:-1], ends[1:], strict=True):
            found[name].append(start + np.arange(max(first, window), end - horizon + 1) - window)
    starts = {name: np.concatenate(rows) for name, rows in found.items()}
    if len(starts["train"]) == 0:
        raise ValueError(
            f"{series.path}: must have a series long enough for training windows of {window} + {horizon} steps with "
            f"{2 * HELD_OUT:.0%} held out, but the longest has {series.lengths.max()}"
        )
    scale = Scale.of(series.values[training]) if standardise else None
    values = series.values.astype(np.float32) if scale is None else scale.apply(series.values)
    splits = {name: WindowItems(values, rows, window, horizon) for name, rows in starts.items() if len(rows)}
    channels = values.shape[1]
    note = f"own series, {horizon} steps ahead" + (", standardised" if standardise else "")
    target_scale = None if scale is None else Scale(np.tile(scale.mean, horizon), np.tile(scale.deviation, horizon))
    return SequenceData(
        series.path.name, "regression", channels, horizon * channels, splits, note, (), scale, target_scale
    )


def _assign_splits(series: Series) -> dict[str, NDArray[np.int64]]:
    """Return the indices of the series of each split."""
    if series.split is not None:
        wrong = [name for name in dict.fromkeys(series.split.tolist()) if name not in SPLITS]
        if wrong:
            raise ValueError(f"{series.path}: split must be one of {', '.join(map(repr, SPLITS))}, got {wrong[0]!r}")
        which = {name: np.flatnonzero(series.split == name) for name in SPLITS}
    else:
        order = np.random.default_rng(0).permutation(len(series))
        held = max(1, int(len(series) * HELD_OUT))
        which = {"train": order[2 * held :], "valid": order[:held], "test": order[held : 2 * held]}
    if len(which["train"]) == 0:
        raise ValueError(f"{series.path}: must have series for training, got {len(series)} in all")
    return which


def _standardised(
    series: Series, training: NDArray[np.int64], standardise: bool
) -> tuple[NDArray[np.float32], Scale | None]:
    """Return the values, standardised by the training series if asked for, and the scale."""
    if not standardise:
        return series.values.astype(np.float32), None
    rows = np.isin(np.repeat(np.arange(len(series)), series.lengths), training)
    scale = Scale.of(series.values[rows])
    return scale.apply(series.values), scale


def _labels(series: Series, classes: int | None) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return class numbers (series,) and the names of the classes."""
    given = np.asarray(series.targets).reshape(len(series), -1)
    if given.shape[1] != 1:
        raise ValueError(f"{series.path}: must have one label per series, got {given.shape[1]}")
    given = given[:, 0]
    if classes is None:
        names, numbers = np.unique(given, return_inverse=True)
        try:
            order = np.argsort(names.astype(np.float64), kind="stable")  # "10" after "9"
        except ValueError:
            order = np.arange(len(names))
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        return rank[numbers].astype(np.int64), tuple(str(name) for name in names[order])
    try:
        numbers = given.astype(np.float64)
        whole = numbers.astype(np.int64)
    except ValueError:
        raise ValueError(f"{series.path}: labels must be integers below classes = {classes}") from None
    if (numbers != whole).any():
        raise ValueError(f"{series.path}: labels must be integers, got {numbers[numbers != whole][0]}")
    check_labels(series.path, whole, positive_int("classes", classes, minimum=2))
    return whole, tuple(str(number) for number in range(classes))


def _target_numbers(series: Series) -> NDArray[np.float64]:
    """Return the targets as finite numbers (series, D)."""
    try:
        numbers = np.asarray(series.targets).reshape(len(series), -1).astype(np.float64)
    except ValueError as error:
        raise ValueError(f"{series.path}: targets must be numbers: {error}") from None
    wrong = np.flatnonzero(~np.isfinite(numbers).all(axis=1))
    if len(wrong):
        raise ValueError(
            f"{series.path}: targets must be finite numbers, got {numbers[wrong[0]]} in series {wrong[0]:,}"
        )
    return numbers
