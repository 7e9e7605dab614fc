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
from trellisnet.data.sequences.filling import FILLS
from trellisnet.data.sequences.forecasting import forecasting
from trellisnet.data.sequences.series import HELD_OUT, SPLITS, Series, read_series
from trellisnet.data.sequences.tables import SUFFIXES as TABLE_SUFFIXES

TASKS = ("classification", "regression", "forecasting")
BELONGS_TO = {
    "label": ("classification",),
    "classes": ("classification",),
    "targets": ("regression", "forecasting"),
    "split": ("classification", "regression"),
    "window": ("forecasting",),
    "horizon": ("forecasting",),
    "future": ("forecasting",),
    "season": ("forecasting",),
}
TABLES_ONLY = ("time_format", "separator", "decimal", "encoding")
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


def load_series(
    path: str | Path,
    task: str,
    *,
    values: Sequence[str] | None = None,
    label: str | None = None,
    targets: Sequence[str] | None = None,
    series: str | None = None,
    time: str | None = None,
    time_format: str | None = None,
    fill: str | None = None,
    separator: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    split: str | None = None,
    classes: int | None = None,
    window: int | None = None,
    horizon: int | None = None,
    future: Sequence[str] | None = None,
    season: int | None = None,
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
        targets: for "regression": columns of the numbers to predict; a NumPy file has the array `target`. For
            "forecasting": which of `values` to predict, the others being covariates; default all.
        series: column of the name of the series of each row; not needed in forecasting if there is only one series.
        time: column to sort the rows of a series by: numbers, or ISO dates and times; default their order in the file.
            Times have equal steps, up to a tenth of a step; months count as equal.
        time_format: how times are written if they are neither, in the codes of `strptime`: "%d.%m.%Y".
        fill: what to do about gaps between times and about missing values: "forward" repeats the last value, "linear"
            interpolates, "zero" inserts zeros; of several rows with the same time, the last counts. Default: each of
            these is an error.
        separator: character between the fields of a CSV file, or "tab"; default ",".
        decimal: "." (default) or ",", before the decimals of a CSV file.
        encoding: of a CSV file; default "utf-8".
        split: for "classification" and "regression": column with "train", "valid" or "test"; a NumPy file may have the
            array `split`.
        classes: for "classification": number of classes; labels are then integers below it. Default: the labels in the
            file, sorted.
        window: for "forecasting": number of steps to read.
        horizon: for "forecasting": number of steps to predict; default 1.
        future: for "forecasting": which of `values` are known ahead, such as holidays; not those of `targets`, which
            must then be given. The model also reads them at the steps to forecast; `window` is at least `horizon`.
        season: for "forecasting": steps after which the series repeats, at most `window`, such as 24 for hours; the
            report then also has the forecast that repeats the last season.
        standardise: scale every input channel and every number to predict to mean 0 and deviation 1 in the training
            split.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: an option does not fit the task or the file, or the file has bad values.
    """
    path = Path(path).expanduser()
    one_of("task", task, TASKS)
    boolean("standardise", standardise)
    values, targets, future = (
        None if given is None else _names(name, given)
        for name, given in (("values", values), ("targets", targets), ("future", future))
    )
    columns = {
        "values": values,
        "label": label,
        "targets": targets,
        "future": future,
        "series": series,
        "time": time,
        "split": split,
    }
    for name, given in {**columns, "classes": classes, "window": window, "horizon": horizon, "season": season}.items():
        if given is not None and task not in BELONGS_TO.get(name, TASKS):
            raise ValueError(f"{name} belongs to {' and '.join(BELONGS_TO[name])}, got {given!r} for {task}")
    for name in ("label", "series", "time", "split"):
        if columns[name] is not None and not isinstance(columns[name], str):
            raise TypeError(f"{name} must be the name of a column, got {columns[name]!r}")
    if fill is not None:
        one_of("fill", fill, FILLS)
    if time_format is not None and not isinstance(time_format, str):
        raise TypeError(f"time_format must be text such as %d.%m.%Y, got {time_format!r}")
    if time_format is not None and time is None:
        raise ValueError(f"time_format belongs to a column of times, got {time_format!r} and no time")
    written: dict[str, Any] = dict(zip(TABLES_ONLY, (time_format, separator, decimal, encoding), strict=True))
    form = SeriesForm(values or (), targets or (), series, time, future=future or (), fill=fill, **written)
    if path.suffix in ARRAY_SUFFIXES:
        for name, given in {**columns, **written}.items():
            if given is not None:
                what = "belongs to tables" if name in TABLES_ONLY else "names columns of a table"
                raise ValueError(f"{name} {what}, got {given!r}; {path} has arrays with fixed names")
        read = read_arrays(path, {"classification": "label", "regression": "target"}.get(task), fill)
    elif path.suffix in TABLE_SUFFIXES:
        for name in NEEDED[task]:
            if columns[name] is None:
                raise ValueError(f"{name} must name columns of {path} for {task}, got None")
        constant = {"classification": [str(label)], "regression": form.targets}.get(task, ())
        read = read_series(path, form, constant, split)
    else:
        raise ValueError(f"{path}: must end in {', '.join((*ARRAY_SUFFIXES, *TABLE_SUFFIXES))}")
    if read.step is not None:
        form = replace(form, step=read.step.length, step_unit=read.step.unit)
    if task == "forecasting":
        data = forecasting(read, _with_windows(form, window, 1 if horizon is None else horizon, season), standardise)
    else:
        data = replace(whole_series(read, task, classes, standardise), form=form)
    return replace(data, note=", ".join(part for part in (data.note, read.note) if part))


def _names(name: str, given: Any) -> tuple[str, ...]:
    """Return one or several names of columns, without repetitions, as a tuple."""
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, (list, tuple)) else (None,)
    if not names or not all(isinstance(each, str) for each in names):
        raise TypeError(f"{name} must be the name of a column or a list of such names, got {given!r}")
    if len(set(names)) < len(names):
        raise ValueError(f"{name} must be different columns, got {given!r}")
    return names


def _with_windows(form: SeriesForm, window: int | None, horizon: int, season: int | None) -> SeriesForm:
    """Return the form with the options of forecasting, checked."""
    known, ahead = positive_int("window", window), positive_int("horizon", horizon)
    for name in form.targets:
        if name not in form.values:
            raise ValueError(f"targets must be some of values in forecasting, {list(form.values)}, got {name!r}")
    for name in form.future:
        if name not in form.values or name in (form.targets or form.values):
            raise ValueError(f"future must be some of values, but not of targets, got {name!r}")
    if form.future and ahead > known:
        raise ValueError(f"horizon must be at most window = {known} with future, got {ahead}")
    if season is not None and positive_int("season", season) > known:
        raise ValueError(f"season must be at most window = {known}, got {season}")
    return replace(form, window=known, horizon=ahead, season=season)


def whole_series(series: Series, task: str, classes: int | None, standardise: bool) -> SequenceData:
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
