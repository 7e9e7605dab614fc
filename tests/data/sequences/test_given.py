import numpy as np
import pytest
import torch

from trellisnet.data import from_arrays

X = np.arange(20 * 6 * 2, dtype=np.float64).reshape(20, 6, 2)
RAGGED = [row[: 2 + i % 5] for i, row in enumerate(X)]


def everything(data, split):
    return next(iter(data.batches(split, batch_size=99)))


def test_labels_and_a_share_held_back():
    data = from_arrays(X, np.arange(20) % 3, valid=0.2, test=0.1)
    assert (data.task, data.input_size, data.output_size) == ("classification", 2, 3)
    parts = [everything(data, name) for name in ("train", "valid", "test")]
    assert [len(part.inputs) for part in parts] == [14, 4, 2]
    seen = sorted(int(row[0, 0]) // 12 for part in parts for row in part.inputs)
    assert seen == list(range(20))  # every sequence once
    for part in parts:
        assert part.targets.tolist() == [int(row[0, 0]) // 12 % 3 for row in part.inputs]
    again = from_arrays(X, np.arange(20) % 3, valid=0.2, test=0.1)
    assert everything(again, "valid").inputs.equal(parts[1].inputs)
    other = from_arrays(X, np.arange(20) % 3, valid=0.2, test=0.1, seed=1)
    assert not everything(other, "valid").inputs.equal(parts[1].inputs)


def test_texts_are_classes_by_name():
    data = from_arrays(X, ["yes" if i % 2 else "no" for i in range(20)])
    assert data.labels == ("no", "yes")
    batch = everything(data, "train")
    assert batch.targets.tolist() == [int(row[0, 0]) // 12 % 2 for row in batch.inputs]


def test_unequal_lengths_are_padded():
    data = from_arrays(RAGGED, torch.arange(20) % 2)
    batch = everything(data, "train")
    for row, length in zip(batch.inputs, batch.lengths.tolist(), strict=True):
        index = int(row[0, 0]) // 12
        assert length == len(RAGGED[index])
        assert row[:length].numpy() == pytest.approx(RAGGED[index])
        assert not row[length:].any()


@pytest.mark.parametrize(
    ("y", "shape"),
    [(X[:, 0, 0], (18, 1)), (X[:, 0, :], (18, 2)), (X[:, :, :1], (18, 6, 1)), (torch.tensor(X), (18, 6, 2))],
)
def test_values(y, shape):
    data = from_arrays(torch.tensor(X), y)
    assert (data.task, data.output_size, data.each_step) == ("regression", shape[-1], len(shape) == 3)
    batch = everything(data, "train")
    assert tuple(batch.targets.shape) == shape
    rows = [int(row[0, 0]) // 12 for row in batch.inputs]
    assert batch.targets.numpy() == pytest.approx(np.asarray(y)[rows].reshape(shape))


def test_values_at_every_step_of_unequal_lengths():
    data = from_arrays(RAGGED, [2 * row for row in RAGGED])
    batch = everything(data, "train")
    assert data.each_step
    assert batch.targets.equal(2 * batch.inputs)


def test_splits_of_their_own():
    data = from_arrays(X, np.arange(20) % 2, valid=(X[:3], [0, 1, 1]), test=(X[:2, :4], [2, 0]))
    assert {name: len(items) for name, items in data.splits.items()} == {"train": 20, "valid": 3, "test": 2}
    assert data.output_size == 3
    assert everything(data, "test").targets.tolist() == [2, 0]


@pytest.mark.parametrize(
    ("x", "y", "options", "message"),
    [
        (X, np.zeros(19, int), {}, "y must have one target per sequence, 20, got 19"),
        (X[0, 0], [1, 2], {}, "x must be sequences"),
        ([], [], {}, "x must be sequences"),
        (X[None], [0], {}, r"x must be \(N, T, C\) or a list of \(T, 2\), of numbers, got float64 \(20, 6, 2\)"),
        ([X[0], X[0, :, :1]], [0, 1], {}, r"got float64 \(6, 1\) for x\[1\]"),
        ([X[0], X[0, :0]], [0, 1], {}, r"got float64 \(0, 2\) for x\[1\]"),
        (X * np.nan, np.zeros(20, int), {}, r"x must be finite numbers, got nan in x\[0\]"),
        (X, np.full(20, np.nan), {}, "y must be finite numbers"),
        (X, np.arange(20) - 1, {}, "y must be labels in 0 .. 18, got -1 to 18"),
        (X, np.arange(20), {"classes": 9}, "y must be labels in 0 .. 8, got 0 to 19"),
        (X, np.zeros((20, 2), int), {}, r"y\[0\] must have the 6 steps of x\[0\], got 2"),
        (X, X[:, :4], {}, r"y\[0\] must have the 6 steps of x\[0\], got 4"),
        (X, np.zeros(20, int), {"valid": 1.5}, "valid must be a share of the sequences between 0 and 1"),
        (X, np.zeros(20, int), {"valid": 0.9, "test": 0.9}, "x must have sequences left to train on, got 20"),
        (X, np.zeros(20, int), {"valid": (X[..., :1], np.zeros(20, int))}, "valid must have the same channels"),
        (X, np.zeros(20, int), {"test": (X, np.zeros(20))}, "test must have the same targets as x and y, labels, got"),
    ],
)
def test_what_cannot_be_is_named(x, y, options, message):
    with pytest.raises(ValueError, match=message):
        from_arrays(x, y, **options)
