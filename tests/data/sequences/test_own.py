import csv
from datetime import date, timedelta

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from trellisnet.data import load

LENGTHS = [5, 3, 9, 1, 7, 4, 6, 2, 8, 5, 5, 5]


def rows():
    """Series of unequal lengths, one row per step, shuffled; the label is the parity, the target the sum of `a`."""
    rng = np.random.default_rng(0)
    found = []
    for name, length in enumerate(LENGTHS):
        a, b = rng.normal(5, 2, size=(2, length)).round(3)
        for t in range(length):
            targets = {"label": "odd" if name % 2 else "even", "sum": round(float(a.sum()), 3)}
            found.append({"id": f"s{name}", "t": t, "a": a[t], "b": b[t], **targets})
    rng.shuffle(found)
    return found


def write(path, table):
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(table[0]))
            writer.writeheader()
            writer.writerows(table)
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table), path)
    return path


def series_of(table, name):
    return np.array([[row["a"], row["b"]] for row in sorted(table, key=lambda row: row["t"]) if row["id"] == name])


@pytest.fixture(params=[".csv", ".parquet"])
def path(request, tmp_path):
    return write(tmp_path / f"data{request.param}", rows())


COLUMNS = {"values": ["a", "b"], "series": "id", "time": "t"}


def everything(data):
    """Inputs, targets and lengths of all series of all splits."""
    for items in data.splits.values():
        inputs, targets = items.take(np.arange(len(items)), int(items.lengths.max()))
        yield from zip(inputs, targets, items.lengths, strict=True)


def test_classification(path):
    data = load("series", path=path, task="classification", label="label", standardise=False, **COLUMNS)
    assert (data.task, data.input_size, data.output_size, data.labels) == ("classification", 2, 2, ("even", "odd"))
    assert {name: len(items) for name, items in data.splits.items()} == {"train": 10, "valid": 1, "test": 1}
    seen = set()
    for inputs, label, length in everything(data):
        name = next(f"s{i}" for i in range(12) if np.allclose(series_of(rows(), f"s{i}")[0], inputs[0], atol=1e-6))
        np.testing.assert_allclose(inputs[:length], series_of(rows(), name), atol=1e-6)
        assert not inputs[length:].any()
        assert label == int(name[1:]) % 2
        seen.add(name)
    assert len(seen) == 12


def test_regression_is_standardised(path):
    data = load("series", path=path, task="regression", targets=["sum"], **COLUMNS)
    assert (data.task, data.input_size, data.output_size) == ("regression", 2, 1)
    training = data.splits["train"]
    inputs, targets = training.take(np.arange(len(training)), 9)
    steps = np.concatenate([row[:length] for row, length in zip(inputs, training.lengths, strict=True)])
    np.testing.assert_allclose(steps.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(steps.std(0), 1, atol=1e-5)
    np.testing.assert_allclose(targets.std(), 1, atol=1e-5)
    for inputs, target, length in everything(data):
        restored = data.input_scale.restore(inputs[:length])[:, 0].sum()
        np.testing.assert_allclose(data.target_scale.restore(target), restored, rtol=1e-4)


def test_a_column_can_determine_the_split(tmp_path):
    table = [{**row, "part": "test" if row["id"] in ("s1", "s2") else "train"} for row in rows()]
    path = write(tmp_path / "data.csv", table)
    data = load("series", path=path, task="classification", label="label", split="part", **COLUMNS)
    assert {name: len(items) for name, items in data.splits.items()} == {"train": 10, "test": 2}
    write(path, [{**row, "part": "dev"} for row in table])
    with pytest.raises(ValueError, match=r"data\.csv: split must be one of 'train', 'valid', 'test', got 'dev'"):
        load("series", path=path, task="classification", label="label", split="part", **COLUMNS)


def test_forecasting(tmp_path):
    table = [{"day": date(2024, 1, 1) + timedelta(days=i), "load": i} for i in range(100)]
    path = write(tmp_path / "load.csv", table[::-1])
    options = {"values": ["load"], "time": "day", "window": 6, "horizon": 2}
    data = load("series", path=path, task="forecasting", standardise=False, **options)
    assert (data.task, data.input_size, data.output_size) == ("regression", 1, 2)
    predicted = {}
    for name, items in data.splits.items():
        inputs, targets = items.take(np.arange(len(items)))
        assert inputs.shape[1:] == (6, 1)
        np.testing.assert_array_equal(targets, inputs[:, -1] + [1, 2])
        predicted[name] = targets.min(), targets.max()
    assert predicted == {"train": (6, 79), "valid": (80, 89), "test": (90, 99)}
    scaled = load("series", path=path, task="forecasting", **options)
    inputs, targets = scaled.splits["test"].take(np.array([0]))
    np.testing.assert_allclose(scaled.target_scale.restore(targets), [[90, 91]], rtol=1e-5)
    np.testing.assert_allclose(scaled.input_scale.mean, [39.5])  # of the training steps only


def test_forecasting_of_several_series(tmp_path):
    values = np.stack([np.arange(40), np.arange(40) + 1000])[..., None]
    np.save(tmp_path / "a.npy", values)
    data = load("series", path=tmp_path / "a.npy", task="forecasting", window=3, standardise=False)
    inputs, targets = data.splits["train"].take(np.arange(len(data.splits["train"])))
    np.testing.assert_array_equal(targets, inputs[:, -1] + 1)  # no window runs into the next series
    assert len(inputs) == 2 * (32 - 3)


def test_numpy_files(tmp_path):
    rng = np.random.default_rng(0)
    equal, ragged = tmp_path / "equal.npz", tmp_path / "ragged.npz"
    values = rng.normal(size=(20, 6, 3))
    np.savez(equal, values=values, label=np.arange(20) % 4)
    lengths = np.array(LENGTHS)
    np.savez(ragged, values=rng.normal(size=lengths.sum()), lengths=lengths, target=rng.normal(size=(12, 2)))
    data = load("series", path=equal, task="classification", classes=5, standardise=False)
    assert (data.input_size, data.output_size) == (3, 5)
    inputs, labels = data.splits["train"].take(np.arange(16), 6)
    for row, label in zip(inputs, labels, strict=True):
        index = np.flatnonzero(np.isclose(values[:, 0, 0], row[0, 0], atol=1e-6))[0]
        np.testing.assert_allclose(row, values[index], atol=1e-6)
        assert label == index % 4
    data = load("series", path=ragged, task="regression")
    assert (data.input_size, data.output_size) == (1, 2)
    assert sorted(length for items in data.splits.values() for length in items.lengths) == sorted(LENGTHS)
    batch = next(iter(data.batches("train", 4)))
    assert batch.inputs.shape == (4, batch.lengths.max(), 1)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (
            lambda row: row.update(a="nan"),
            {},
            r"column 'a', line 4: must be a finite number, got 'nan'; fill = forward",
        ),
        (lambda row: row.update(a="many"), {}, r"column 'a', line 4: must be a number, got 'many'"),
        (lambda row: row.update(a=""), {}, r"column 'a', line 4: must be a finite number, got ''; fill = forward"),
        (lambda row: row.update(label=""), {}, r"column 'label', line 4: must not be empty"),
        (lambda row: row.update(label="new"), {}, r"column 'label', line \d+: must be the same in a whole series"),
        (lambda row: None, {"series": ""}, r"must have a column '', got 'id', 't', 'a', 'b', 'label', 'sum'"),
        (lambda row: None, {"values": ["a", "c"]}, r"must have a column 'c', got 'id', 't', 'a', 'b', 'label', 'sum'"),
        (lambda row: None, {"classes": 2}, r"labels must be integers below classes = 2"),
        (
            lambda row: None,
            {"time": "label"},
            r"column 'label', line 2: must be an ISO date or time, .* got '(odd|even)'; time_format, such as",
        ),
    ],
)
def test_bad_tables(tmp_path, change, options, message):
    table = rows()
    while LENGTHS[int(table[2]["id"][1:])] == 1:
        table.append(table.pop(2))
    change(table[2])  # line 4 of the file
    path = write(tmp_path / "data.csv", table)
    with pytest.raises(ValueError, match=rf"data\.csv: {message}"):
        load("series", **{"path": path, "task": "classification", "label": "label", **COLUMNS, **options})


def test_gaps_in_parquet(tmp_path):
    table = rows()
    table[7]["b"] = None
    path = write(tmp_path / "data.parquet", table)
    with pytest.raises(ValueError, match=r"data\.parquet: column 'b', row 7: must be a finite number, got nan; fill"):
        load("series", path=path, task="classification", label="label", **COLUMNS)
    with pytest.raises(ValueError, match=r"data\.parquet: must have a column 'c', got 'id'"):
        load("series", path=path, task="classification", label="c", **COLUMNS)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "is empty"),
        ("a.csv", b"id,t,a,b,label\n", "has no rows"),
        ("a.csv", b"id,t,a,b,label\n1,2,3\n", "line 2 must have 5 fields, got 3"),
        ("a.csv", b"id,t,a,b,label\n1,2,3,4,\xff\n", "must be UTF-8"),
        ("a.parquet", b"PAR1 but no more", "not a Parquet file"),
        ("a.npy", b"nonsense", "not a NumPy file"),
        ("a.npz", b"PK\x03\x04", "not a NumPy file"),
        ("a.txt", b"1 2 3", r"must end in \.npy, \.npz, \.csv, \.parquet"),
    ],
)
def test_bad_files(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    columns = {} if name.startswith("a.np") else {"label": "label", **COLUMNS}
    with pytest.raises(ValueError, match=rf"{name}: {message}"):
        load("series", path=path, task="classification", **columns)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"label": [0, 1]}, "must have an array 'values', got 'label'"),
        ({"values": np.ones((3, 4))}, "must have an array 'label', got 'values'"),
        ({"values": np.ones((3, 4)), "label": [0, 1]}, r"'label' must have 3 rows, one per series, got shape \(2,\)"),
        ({"values": np.ones((3, 4)), "label": [0, 1, 7]}, r"labels must be in \[0, 3\), got 7 in record 2"),
        ({"values": np.ones((3, 4)), "label": [0, 1, -1]}, r"labels must be in \[0, 3\), got -1 in record 2"),
        ({"values": np.ones((3, 4)), "label": [0, 1, 0.5]}, r"labels must be integers, got 0\.5"),
        (
            {"values": np.ones(4), "lengths": [2, 3], "label": [0, 1]},
            "'lengths' must be of at least 1 and add up to the 4",
        ),
        ({"values": np.ones(4), "label": [0, 1]}, r"'values' must be \(series, steps\) or .*, got \(4,\)"),
        (
            {"values": [[1.0, 2.0], [3.0, np.nan], [1.0, 1.0]], "label": [0, 1, 2]},
            "'values', series 1, step 1, channel 0: must be a finite number, got nan; fill = forward",
        ),
        ({"values": [["a"]], "label": [0]}, "'values' must be numbers, got <U1"),
    ],
)
def test_bad_arrays(tmp_path, arrays, message):
    np.savez(tmp_path / "a.npz", **{name: np.array(array) for name, array in arrays.items()})
    with pytest.raises(ValueError, match=rf"a\.npz: {message}"):
        load("series", path=tmp_path / "a.npz", task="classification", classes=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"task": "guessing"},
            "task must be one of 'classification', 'tagging', 'regression', 'forecasting', got 'guessing'",
        ),
        ({"task": "forecasting"}, "window must be an integer >= 1, got None"),
        ({"task": "regression", "window": 3}, "window belongs to forecasting, got 3 for regression"),
        ({"task": "regression", "classes": 3}, "classes belongs to classification and tagging, got 3 for regression"),
        (
            {"task": "forecasting", "split": "id"},
            "split belongs to classification and tagging and regression, got 'id'",
        ),
        ({"task": "classification", "horizon": 1}, "horizon belongs to forecasting, got 1 for classification"),
        ({"task": "regression"}, r"targets must name columns of .*data\.csv for regression, got None"),
        ({"task": "classification"}, r"label must name columns of .*data\.csv for classification, got None"),
        ({"task": "classification", "label": "label", "series": None}, "series must name columns"),
        (
            {"task": "forecasting", "window": 50},
            r"must have a series long enough for training windows of 50 \+ 1 steps",
        ),
        ({"task": "regression", "targets": ["id"]}, "targets must be numbers"),
        ({"task": "regression", "targets": ["sum", "sum"]}, r"targets must be different columns, got \['sum', 'sum'\]"),
    ],
)
def test_errors_name_bad_options(tmp_path, options, message):
    path = write(tmp_path / "data.csv", rows())
    error = TypeError if "got None" in message and "window" in message else ValueError
    with pytest.raises(error, match=message):
        load("series", **{"path": path, **COLUMNS, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"values": 3}, "values must be the name of a column or a list of such names, got 3"),
        ({"values": []}, r"values must be the name of a column or a list of such names, got \[\]"),
        ({"future": [1]}, r"future must be the name of a column or a list of such names, got \[1\]"),
        ({"time_format": 2024}, r"time_format must be text such as %d\.%m\.%Y, got 2024"),
    ],
)
def test_options_of_a_wrong_type(tmp_path, options, message):
    path = write(tmp_path / "data.csv", rows())
    with pytest.raises(TypeError, match=message):
        load("series", **{"path": path, "task": "forecasting", "window": 2, **COLUMNS, **options})


def test_columns_are_refused_for_numpy_files(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((2, 30)))
    with pytest.raises(ValueError, match=r"values names columns of a table, got \('a',\); .*a\.npy has arrays"):
        load("series", path=tmp_path / "a.npy", task="forecasting", values=["a"], window=2)


def test_one_column_needs_no_list(tmp_path):
    path = write(tmp_path / "data.csv", [{"load": i % 7, "id": i // 9, "sum": i // 9} for i in range(90)])
    options = {"path": path, "task": "regression", "series": "id"}
    one = load("series", values="load", targets="sum", **options)
    listed = load("series", values=["load"], targets=["sum"], **options)
    for single, several in zip(*(data.splits["train"].take(np.arange(4), 9) for data in (one, listed)), strict=True):
        np.testing.assert_array_equal(single, several)


def test_standardisation_keeps_the_digits_of_large_values(tmp_path):
    path = write(tmp_path / "data.csv", [{"t": 1.7e9 + i} for i in range(100)])
    data = load("series", path=path, task="forecasting", values=["t"], window=2)
    inputs, targets = data.splits["train"].take(np.array([0, 1]))
    np.testing.assert_allclose(data.target_scale.restore(targets)[:, 0], [1.7e9 + 2, 1.7e9 + 3], rtol=1e-14)
    assert inputs.dtype == targets.dtype == np.float32
