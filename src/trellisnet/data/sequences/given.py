"""Sequences that are arrays already, as Python programs have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellisnet.core.checks import seed_number
from trellisnet.data.batches import Items
from trellisnet.data.sequences.data import SequenceData

Split = float | tuple[Any, Any] | None
KINDS = {"i": "labels", "u": "labels", "b": "labels", "U": "texts", "f": "values"}  # of targets, by their dtype


class GivenItems(Items):
    """Sequences (T, C), and a target of each: a label, values (D,), values (T, D) or labels (T,) at every step."""

    def __init__(self, inputs: Sequence[NDArray[np.float32]], targets: Any, tags: bool = False) -> None:
        self.inputs, self.targets, self.tags = inputs, targets, tags
        lengths = np.array([len(each) for each in inputs], dtype=np.int64)
        self.lengths = None if (lengths == lengths[0]).all() else lengths

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, indices: NDArray[np.int64], steps: int | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
        """Inputs (B, T, C), zero after the end of a sequence, and labels (B,) or (B, T), values (B, D) or (B, T, D)."""
        inputs, targets = ([each[i] for i in indices.tolist()] for each in (self.inputs, self.targets))
        if self.tags:
            return padded(inputs, steps), padded([each[:, None] for each in targets], steps)[..., 0]
        every_step = np.ndim(targets[0]) == 2
        return padded(inputs, steps), padded(targets, steps) if every_step else np.stack(targets)


@dataclass(frozen=True)
class _Given:
    """Sequences with their targets as they were given, and what kind of targets that is."""

    inputs: list[NDArray[np.float32]]
    targets: Any
    kind: str

    def cut(self, rows: NDArray[np.int64]) -> _Given:
        numbers = rows.tolist()
        return _Given([self.inputs[i] for i in numbers], [self.targets[i] for i in numbers], self.kind)


def from_arrays(
    x: Any, y: Any, *, valid: Split = 0.1, test: Split = None, classes: int | None = None, seed: int = 0
) -> SequenceData:
    """A dataset of arrays or tensors. Values keep their units: scale them first if they are large.

    Args:
        x: the sequences: (N, T, C), or (N, T) of one channel; or a list of sequences (T, C) or (T,) of any lengths.
        y: what is to be predicted. Classification: N labels, integers or texts. Tagging: labels at every step, (N, T)
            or a list of (T,). Regression: N numbers or (N, D); or numbers at every step, (N, T, D) or a list of (T, D).
        valid: what the best model is chosen by: a share of the sequences, drawn at random, or sequences and targets
            of their own as a pair (x, y).
        test: what the best model is judged by, in the same forms; default none.
        classes: labels are integers below this; default: one more than the largest.
        seed: of the drawing.

    >>> data = from_arrays(np.zeros((20, 7, 3)), np.arange(20) % 4)
    >>> data.task, data.input_size, data.output_size, {name: len(items) for name, items in data.splits.items()}
    ('classification', 3, 4, {'train': 18, 'valid': 2})
    """
    given, parts = _read("x", "y", x, y), {}
    order = np.random.default_rng(seed_number("seed", seed)).permutation(len(given.inputs))
    for name, wanted in (("valid", valid), ("test", test)):
        if isinstance(wanted, (tuple, list)) and len(wanted) == 2:
            parts[name] = _read(f"{name}[0]", f"{name}[1]", *wanted)
            _check_alike(name, given, parts[name])
        elif wanted is not None:
            held = _held_back(name, wanted, len(given.inputs))
            parts[name], order = given.cut(np.sort(order[:held])), order[held:]
    if not len(order):
        raise ValueError(f"x must have sequences left to train on, got {len(given.inputs)} in all")
    parts = {"train": given.cut(np.sort(order)), **parts}
    channels = given.inputs[0].shape[1]
    if given.kind in ("labels", "texts"):
        labels, splits = _classified(parts, given.kind, classes)
        task = "tagging" if np.ndim(given.targets[0]) else "classification"
        return SequenceData("arrays", task, channels, len(labels), splits, labels=labels)
    splits = {name: GivenItems(part.inputs, part.targets) for name, part in parts.items()}
    size, each_step = given.targets[0].shape[-1], given.kind == "steps"
    return SequenceData("arrays", "regression", channels, size, splits, each_step=each_step)


def _classified(
    parts: Mapping[str, _Given], kind: str, classes: int | None
) -> tuple[tuple[str, ...], dict[str, GivenItems]]:
    """The names of the classes, and the splits with the classes' numbers as targets."""
    given = {label for part in parts.values() for target in part.targets for label in np.atleast_1d(target).tolist()}
    if kind == "texts":
        labels = tuple(sorted(map(str, given)))
        number = {label: i for i, label in enumerate(labels)}
    else:
        count = max(2, int(max(given)) + 1) if classes is None else classes
        if int(min(given)) < 0 or int(max(given)) >= count:
            raise ValueError(f"y must be labels in 0 .. {count - 1}, got {int(min(given))} to {int(max(given))}")
        labels, number = tuple(map(str, range(count))), {label: int(label) for label in given}
    splits = {}
    for name, part in parts.items():
        rows = [
            np.array([number[label] for label in np.atleast_1d(each).tolist()], dtype=np.int64) for each in part.targets
        ]
        tags = np.ndim(part.targets[0]) == 1
        splits[name] = GivenItems(part.inputs, rows if tags else np.concatenate(rows), tags)
    return labels, splits


def read_sequences(name: str, x: Any, missing: bool = False) -> list[NDArray[np.float32]]:
    """Sequences (T, C) of (N, T, C), (N, T), or a list of (T, C) or (T,), checked; `missing`: they may have NaN."""
    rows = x if isinstance(x, (list, tuple)) else _array(name, x)
    if np.ndim(rows[0] if len(rows) else 0) == 0:
        raise ValueError(f"{name} must be sequences, (N, T, C) or a list of (T, C), got {_described(x)}")
    arrays = [_array(f"{name}[{i}]", row) for i, row in enumerate(rows)]
    arrays = [row[:, None] if row.ndim == 1 else row for row in arrays]
    channels = arrays[0].shape[-1]
    for i, row in enumerate(arrays):
        if row.ndim != 2 or not row.size or row.shape[1] != channels or row.dtype.kind not in "biuf":
            got = f"{row.dtype} {row.shape} for {name}[{i}]"
            raise ValueError(f"{name} must be (N, T, C) or a list of (T, {channels}), of numbers, got {got}")
        wrong = ~(np.isfinite(row) | (np.isnan(row) & missing))
        if wrong.any():
            raise ValueError(f"{name} must be finite numbers, got {row[wrong][0]} in {name}[{i}]")
    return [row.astype(np.float32) for row in arrays]


def padded(rows: Sequence[NDArray[Any]], steps: int | None = None) -> NDArray[Any]:
    """Rows (T, C) as (B, T, C), with zeros after the end of a shorter one."""
    longest = max(map(len, rows)) if steps is None else steps
    together = np.zeros((len(rows), longest, rows[0].shape[1]), dtype=rows[0].dtype)
    for i, row in enumerate(rows):
        together[i, : len(row)] = row
    return together


def _read(x_name: str, y_name: str, x: Any, y: Any) -> _Given:
    inputs = read_sequences(x_name, x)
    uneven = isinstance(y, (list, tuple)) and len(y) > 0 and np.ndim(y[0]) > 0
    if len(y) != len(inputs):
        raise ValueError(f"{y_name} must have one target per sequence, {len(inputs)}, got {len(y)}")
    targets = None if uneven else _array(y_name, y)
    tags = _tags(y_name, y if targets is None else targets)
    if tags is not None:
        for i, (row, target) in enumerate(zip(inputs, tags, strict=True)):
            if len(row) != len(target):
                raise ValueError(f"{y_name}[{i}] must have the {len(row)} steps of {x_name}[{i}], got {len(target)}")
        return _Given(inputs, tags, KINDS[tags[0].dtype.kind])
    if targets is None or targets.ndim == 3:
        steps = read_sequences(y_name, y)
        for i, (row, target) in enumerate(zip(inputs, steps, strict=True)):
            if len(row) != len(target):
                raise ValueError(f"{y_name}[{i}] must have the {len(row)} steps of {x_name}[{i}], got {len(target)}")
        return _Given(inputs, steps, "steps")
    kind = KINDS.get(targets.dtype.kind)
    if kind is None or targets.ndim > (2 if kind == "values" else 1):
        raise ValueError(
            f"{y_name} must be labels (N,) or (N, T), or numbers (N,), (N, D) or (N, T, D), got {_described(targets)}"
        )
    if kind != "values":
        return _Given(inputs, targets, kind)
    if not np.isfinite(targets).all():
        raise ValueError(f"{y_name} must be finite numbers")
    return _Given(inputs, targets.reshape(len(targets), -1).astype(np.float32), kind)


def _tags(name: str, y: Any) -> list[NDArray[Any]] | None:
    """Labels (T,) at every step of each sequence; None if the targets are others."""
    rows = [_array(f"{name}[{i}]", row) for i, row in enumerate(y)]
    kinds = {KINDS.get(row.dtype.kind) for row in rows}
    if any(row.ndim != 1 for row in rows) or kinds not in ({"labels"}, {"texts"}):
        return None
    return rows


def _check_alike(name: str, given: _Given, own: _Given) -> None:
    """That a split of its own is of the same kind and sizes as what is trained on."""
    for what, ours, theirs in (
        ("targets", given.kind, own.kind),
        ("channels", given.inputs[0].shape[1], own.inputs[0].shape[1]),
        ("values per target", _width(given), _width(own)),
    ):
        if ours != theirs:
            raise ValueError(f"{name} must have the same {what} as x and y, {ours}, got {theirs}")


def _width(given: _Given) -> tuple[int, ...]:
    shape = np.shape(given.targets[0])
    return shape[-1:] if given.kind in ("values", "steps") else (0,) * len(shape)  # labels: whether at every step


def _held_back(name: str, share: Any, count: int) -> int:
    if not isinstance(share, (int, float)) or isinstance(share, bool) or not 0 < share < 1:
        raise ValueError(f"{name} must be a share of the sequences between 0 and 1, or a pair (x, y), got {share!r}")
    return max(1, round(share * count))


def _array(name: str, value: Any) -> NDArray[Any]:
    try:
        return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    except ValueError as error:
        raise ValueError(f"{name} must be an array: {error}") from None


def _described(value: Any) -> str:
    array = np.asarray(value) if isinstance(value, np.ndarray) or hasattr(value, "shape") else None
    return type(value).__name__ if array is None else f"{array.dtype} {array.shape}"
