"""Whole series with a target each, or a label at every step."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellisnet.core.checks import positive_int
from trellisnet.data.batches import Items
from trellisnet.data.sequences.binary import check_labels
from trellisnet.data.sequences.data import Scale, SequenceData
from trellisnet.data.sequences.filling import with_marks
from trellisnet.data.sequences.series import HELD_OUT, SPLITS, Series


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


class TaggedItems(SeriesItems):
    """Whole series, and the label of each of their steps."""

    def __init__(self, series: Series, values: NDArray[np.float32], tags: NDArray[np.int64], which: NDArray[np.int64]):
        super().__init__(series, values, np.zeros(len(series)), which)
        self.tags = tags

    def take(self, indices: NDArray[np.int64], steps: int | None = None) -> tuple[NDArray[np.float32], NDArray[Any]]:
        """Return values (B, steps, C) and labels (B, steps), both zero after the end of a series."""
        inputs, _ = super().take(indices, steps)
        tags = np.zeros(inputs.shape[:2], dtype=np.int64)
        for row, index in enumerate(indices.tolist()):
            start, length = self.starts[index], self.lengths[index]
            tags[row, :length] = self.tags[start : start + length]
        return inputs, tags


def whole_series(
    series: Series, task: str, classes: int | None, standardise: bool, masked: bool = False
) -> SequenceData:
    """Return a dataset with one target per series, or for "tagging" one label per step.

    With `masked`, inputs have the marks of missing values.
    """
    which = _assign_splits(series)
    values, scale = _standardised(series, which["train"], standardise)
    values = with_marks(values) if masked else values
    targets: NDArray[Any]
    labels: tuple[str, ...] = ()
    target_scale = None
    items: type[SeriesItems] = SeriesItems
    if task in ("classification", "tagging"):
        targets, labels = _labels(series, classes)
        size = len(labels)
        if task == "tagging":
            items = TaggedItems
            _check_tags(series, targets, labels)
    else:
        numbers = _target_numbers(series)
        size = numbers.shape[1]
        target_scale = Scale.of(numbers[which["train"]]) if standardise else None
        targets = numbers.astype(np.float32) if target_scale is None else target_scale.apply(numbers)
    splits = {name: items(series, values, targets, rows) for name, rows in which.items() if len(rows)}
    note = "own series" + (", standardised" if standardise else "")
    return SequenceData(series.path.name, task, values.shape[1], size, splits, note, labels, scale, target_scale)


def _check_tags(series: Series, numbers: NDArray[np.int64], labels: tuple[str, ...]) -> None:
    """Raise a ValueError if labels of steps (total steps,) are all the same, or the same within every series."""
    if (numbers == numbers[0]).all():
        raise ValueError(
            f"{series.path}: the label must have two values or more, got {labels[numbers[0]]!r} at every step"
        )
    if (np.repeat(numbers[series.starts], series.lengths) == numbers).all():
        raise ValueError(
            f"{series.path}: the label is the same at all steps of every series, which is the task classification"
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
    """Return class numbers (series,) or (total steps,) and the names of the classes."""
    given = np.asarray(series.targets)
    given = given.reshape(len(given), -1)
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
