"""The user's own series: classification, regression and forecasting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellisnet.core.checks import one_of, positive_int
from trellisnet.data.batches import Items
from trellisnet.data.sequences.arrays import SUFFIXES as ARRAY_SUFFIXES
from trellisnet.data.sequences.arrays import read_arrays
from trellisnet.data.sequences.binary import check_labels
from trellisnet.data.sequences.data import Scale, SequenceData, SeriesForm
from trellisnet.data.sequences.series import SPLITS, Series, group
from trellisnet.data.sequences.tables import SUFFIXES as TABLE_SUFFIXES
from trellisnet.data.sequences.tables import read_table

HELD_OUT = 0.1  # of the series, or of the steps in forecasting, for validation, and as much for testing
TASKS = ("classification", "regression", "forecasting")
BELONGS_TO = {
    "label": ("classification",),
    "classes": ("classification",),
    "targets": ("regression",),
    "split": ("classification", "regression"),
    "window": ("forecasting",),
    "horizon": ("forecasting",),
}
NEEDED = {  # of a table
    "classification": ("values", "label", "series"),
    "regression": ("values", "targets", "series"),
    "forecasting": ("values",),
}


class SeriesItems(Items):
    """Whole series and their answers."""

    lengths: NDArray[np.int64]

    def __init__(self, series: Series, values: NDArray[np.float32], answers: NDArray[Any], which: NDArray[np.int64]):
        self.values, self.answers = values, answers[which]
        self.starts, self.lengths = series.starts[which], series.lengths[which]

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, indices: NDArray[np.int64], steps: int | None = None) -> tuple[NDArray[np.float32], NDArray[Any]]:
        """Values (B, T, C), zero after the end of a series, and labels (B,) or numbers (B, D)."""
        assert steps is not None
        inputs = np.zeros((len(indices), steps, self.values.shape[1]), dtype=np.float32)
        for row, index in enumerate(indices.tolist()):
            start, length = self.starts[index], self.lengths[index]
            inputs[row, :length] = self.values[start : start + length]
        return inputs, self.answers[indices]


class WindowItems(Items):
    """Windows of series, and the values that come after each."""

    def __init__(self, values: NDArray[np.float32], starts: NDArray[np.int64], window: int, horizon: int) -> None:
        self.values, self.starts, self.window, self.horizon = values, starts, window, horizon

    def __len__(self) -> int:
        return len(self.starts)

    def take(
        self, indices: NDArray[np.int64], steps: int | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Values (B, T, C) and the next (B, horizon * C), step by step."""
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
    """Series from a `.csv` or `.parquet` file with one row a step, or from a `.npy` or `.npz` file (see `read_arrays`).

    In forecasting the last tenth of each series is for testing and the tenth before for validation: their windows
    predict values there, and may read values before. Otherwise whole series are dealt out at random, always in the same
    way, unless the file says which belongs to which.

    Args:
        path: the file.
        task: "classification", "regression" or "forecasting".
        values: columns of what is read at each step; in a NumPy file the array `values`.
        label: of "classification": the column of the class; in a NumPy file the array `label`.
        targets: of "regression": the columns of the numbers to be predicted; in a NumPy file the array `target`.
        series: column that tells which series a row belongs to; not needed in forecasting if there is only one.
        time: column that tells the order of the rows of a series; default their order in the file.
        split: not of "forecasting": column that says "train", "valid" or "test"; in a NumPy file the array `split`.
        classes: of "classification": labels are integers below this. Default: whatever labels there are, sorted.
        window: of "forecasting": steps to read.
        horizon: of "forecasting": steps to predict; default 1.
        standardise: give every channel and every number to be predicted mean 0 and deviation 1 in the training split.
    """
    path = Path(path).expanduser()
    one_of("task", task, TASKS)
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
        answer = [label] if label is not None else list(targets or ())
        wanted = [*(values or ()), *answer, *(name for name in (series, time, split) if name)]
        read = group(read_table(path, list(dict.fromkeys(wanted))), values or (), answer, series, time, split)
    else:
        raise ValueError(f"{path}: must end in {', '.join((*ARRAY_SUFFIXES, *TABLE_SUFFIXES))}")
    if task == "forecasting":
        ahead = 1 if horizon is None else positive_int("horizon", horizon)
        form = SeriesForm(tuple(values or ()), (), series, time, positive_int("window", window), ahead)
        return replace(_forecasting(read, positive_int("window", window), ahead, standardise), form=form)
    form = SeriesForm(tuple(values or ()), tuple(targets or ()), series, time)
    return replace(_whole(read, task, classes, standardise), form=form)


def _whole(series: Series, task: str, classes: int | None, standardise: bool) -> SequenceData:
    which = _deal(series)
    values, scale = _standardised(series, which["train"], standardise)
    answers: NDArray[Any]
    labels: tuple[str, ...] = ()
    target_scale = None
    assert series.answers is not None
    if task == "classification":
        answers, labels = _labels(series, classes)
        size = len(labels)
    else:
        numbers = _numbers(series)
        size = numbers.shape[1]
        target_scale = Scale.of(numbers[which["train"]]) if standardise else None
        answers = numbers.astype(np.float32) if target_scale is None else target_scale.apply(numbers)
    splits = {name: SeriesItems(series, values, answers, rows) for name, rows in which.items() if len(rows)}
    note = "own series" + (", standardised" if standardise else "")
    return SequenceData(series.path.name, task, values.shape[1], size, splits, note, labels, scale, target_scale)


def _forecasting(series: Series, window: int, horizon: int, standardise: bool) -> SequenceData:
    spans: dict[str, list[NDArray[np.int64]]] = {name: [] for name in SPLITS}
    training = np.zeros(len(series.values), dtype=bool)
    for start, length in zip(series.starts.tolist(), series.lengths.tolist(), strict=True):
        held = int(length * HELD_OUT)
        ends = (0, length - 2 * held, length - held, length)  # each split predicts values between two of them
        training[start : start + ends[1]] = True
        for name, first, end in zip(SPLITS, ends[:-1], ends[1:], strict=True):
            spans[name].append(start + np.arange(max(first, window), end - horizon + 1) - window)
    starts = {name: np.concatenate(found) for name, found in spans.items()}
    if len(starts["train"]) == 0:
        raise ValueError(
            f"{series.path}: must have a series long enough for training windows of {window} + {horizon} steps with "
            f"{2 * HELD_OUT:.0%} held out, but the longest has {series.lengths.max()}"
        )
    scale = Scale.of(series.values[training]) if standardise else None
    values = series.values.astype(np.float32) if scale is None else scale.apply(series.values)
    splits = {name: WindowItems(values, found, window, horizon) for name, found in starts.items() if len(found)}
    channels = values.shape[1]
    note = f"own series, {horizon} steps ahead" + (", standardised" if standardise else "")
    target_scale = None if scale is None else Scale(np.tile(scale.mean, horizon), np.tile(scale.deviation, horizon))
    return SequenceData(
        series.path.name, "regression", channels, horizon * channels, splits, note, (), scale, target_scale
    )


def _deal(series: Series) -> dict[str, NDArray[np.int64]]:
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
    series: Series, training: NDArray[np.int64], wanted: bool
) -> tuple[NDArray[np.float32], Scale | None]:
    if not wanted:
        return series.values.astype(np.float32), None
    rows = np.isin(np.repeat(np.arange(len(series)), series.lengths), training)
    scale = Scale.of(series.values[rows])
    return scale.apply(series.values), scale


def _labels(series: Series, classes: int | None) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    given = np.asarray(series.answers).reshape(len(series), -1)
    if given.shape[1] != 1:
        raise ValueError(f"{series.path}: must have one label a series, got {given.shape[1]}")
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


def _numbers(series: Series) -> NDArray[np.float64]:
    try:
        numbers = np.asarray(series.answers).reshape(len(series), -1).astype(np.float64)
    except ValueError as error:
        raise ValueError(f"{series.path}: targets must be numbers: {error}") from None
    wrong = np.flatnonzero(~np.isfinite(numbers).all(axis=1))
    if len(wrong):
        raise ValueError(
            f"{series.path}: targets must be finite numbers, got {numbers[wrong[0]]} in series {wrong[0]:,}"
        )
    return numbers
