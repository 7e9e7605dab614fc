"""The user's own series: classification, tagging, regression and forecasting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trellisnet.core.checks import boolean, one_of, positive_int
from trellisnet.data.sequences.arrays import SUFFIXES as ARRAY_SUFFIXES
from trellisnet.data.sequences.arrays import read_arrays
from trellisnet.data.sequences.data import SequenceData, SeriesForm
from trellisnet.data.sequences.filling import FILLS
from trellisnet.data.sequences.forecasting import forecasting
from trellisnet.data.sequences.series import read_series
from trellisnet.data.sequences.tables import SUFFIXES as TABLE_SUFFIXES
from trellisnet.data.sequences.whole import whole_series

TASKS = ("classification", "tagging", "regression", "forecasting")
BELONGS_TO = {
    "label": ("classification", "tagging"),
    "classes": ("classification", "tagging"),
    "targets": ("regression", "forecasting"),
    "split": ("classification", "tagging", "regression"),
    "window": ("forecasting",),
    "horizon": ("forecasting",),
    "future": ("forecasting",),
    "season": ("forecasting",),
}
TABLES_ONLY = ("time_format", "separator", "decimal", "encoding")
NEEDED = {  # columns of a table
    "classification": ("values", "label", "series"),
    "tagging": ("values", "label", "series"),
    "regression": ("values", "targets", "series"),
    "forecasting": ("values",),
}


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
        task: "classification"; "tagging", one label per step; "regression"; or "forecasting".
        values: columns of the input channels; a NumPy file has the array `values`.
        label: for "classification" and "tagging": column of the class; for "classification" it is the same in all rows
            of a series; a NumPy file has the array `label`.
        targets: for "regression": columns of the numbers to predict; a NumPy file has the array `target`. For
            "forecasting": which of `values` to predict, the others being covariates; default all.
        series: column of the name of the series of each row; not needed in forecasting if there is only one series.
        time: column to sort the rows of a series by: numbers, or ISO dates and times; default their order in the file.
            Times have equal steps, up to a tenth of a step; months count as equal.
        time_format: how times are written if they are neither, in the codes of `strptime`: "%d.%m.%Y".
        fill: what to do about gaps between times and about missing values: "forward" repeats the last value, "linear"
            interpolates, "zero" inserts zeros; "masked" shows the model 0 after standardising, and for every channel
            another one that is 1 where there is a value and 0 where there is none; forecasts of missing values do not
            count in the loss and the metrics. Of several rows with the same time, the last counts. Default: each of
            these is an error.
        separator: character between the fields of a CSV file, or "tab"; default ",".
        decimal: "." (default) or ",", before the decimals of a CSV file.
        encoding: of a CSV file; default "utf-8".
        split: for all tasks but "forecasting": column with "train", "valid" or "test"; a NumPy file may have the array
            `split`.
        classes: for "classification" and "tagging": number of classes; labels are then integers below it. Default: the
            labels in the file, sorted.
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
    tag = label if task == "tagging" else None
    form = SeriesForm(values or (), targets or (), series, time, future=future or (), fill=fill, label=tag, **written)
    if path.suffix in ARRAY_SUFFIXES:
        for name, given in {**columns, **written}.items():
            if given is not None:
                what = "belongs to tables" if name in TABLES_ONLY else "names columns of a table"
                raise ValueError(f"{name} {what}, got {given!r}; {path} has arrays with fixed names")
        array = {"classification": "label", "tagging": "label", "regression": "target"}.get(task)
        read = read_arrays(path, array, fill, each_step=task == "tagging")
    elif path.suffix in TABLE_SUFFIXES:
        for name in NEEDED[task]:
            if columns[name] is None:
                raise ValueError(f"{name} must name columns of {path} for {task}, got None")
        constant = {"classification": [str(label)], "regression": form.targets}.get(task, ())
        read = read_series(path, form, constant, split, tag=tag)
    else:
        raise ValueError(f"{path}: must end in {', '.join((*ARRAY_SUFFIXES, *TABLE_SUFFIXES))}")
    if read.step is not None:
        form = replace(form, step=read.step.length, step_unit=read.step.unit)
    if task == "forecasting":
        data = forecasting(read, _with_windows(form, window, 1 if horizon is None else horizon, season), standardise)
    else:
        data = replace(whole_series(read, task, classes, standardise, form.masked), form=form)
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
