"""Times of tables are parsed, never compared as text, and placed on a regular grid."""

from datetime import date, datetime, timedelta

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from trellisnet.data import load

OPTIONS = {"task": "forecasting", "values": ["load"], "time": "at", "window": 2, "standardise": False}


def write(path, stamps, loads=None):
    """A table of times and the numbers 0, 1, 2, ... as text; a stamp that is None is a blank line."""
    loads = range(len(stamps)) if loads is None else loads
    lines = ["" if at is None else f"{at},{load}" for at, load in zip(stamps, loads, strict=True)]
    path.write_text("\n".join(["at,load", *lines, ""]))
    return path


def values(path, **options):
    """The values of the file in the order of time."""
    return load("series", path=path, **{**OPTIONS, **options}).splits["train"].values[:, 0].tolist()


DAYS = [date(2021, 12, 1) + timedelta(days=i) for i in range(70)]  # over a year's end


@pytest.mark.parametrize(
    ("stamps", "time_format"),
    [
        ([f"{day:%d.%m.%Y}" for day in DAYS], "%d.%m.%Y"),
        ([f"{day:%m/%d/%Y}" for day in DAYS], "%m/%d/%Y"),
        ([f"{day:%Y%m%d}" for day in DAYS], "%Y%m%d"),
        ([f"{day}" for day in DAYS], None),
        ([f"{day}T00:00:00.5Z" for day in DAYS], None),
        ([str(i) for i in range(-35, 35)], None),  # as text, -1 precedes -2, and 10 precedes 9
        ([f"{i / 30:.3f}" for i in range(70)], None),  # rounded: steps of 0.033 and 0.034
        ([f"{2000 + i // 12}-{1 + i % 12:02}" for i in range(70)], None),
        ([f"{2000 + i // 12}-{1 + i % 12:02}-01 00:00" for i in range(70)], None),
        ([str(date(2000 + (i + 1) // 12, 1 + (i + 1) % 12, 1) - timedelta(days=1)) for i in range(70)], None),
        ([f"{1930 + i}-07-01" for i in range(70)], None),
        ([f"2024-03-30T{i % 24:02}:00" for i in range(24)] + [f"2024-03-31T{i:02}:00" for i in range(24)], None),
    ],
)
def test_rows_are_sorted_by_the_parsed_time(tmp_path, stamps, time_format):
    order = np.random.default_rng(0).permutation(len(stamps))
    path = write(tmp_path / "a.csv", [stamps[i] for i in order], order)
    assert values(path, time_format=time_format) == list(range(len(stamps)))


def test_offsets_from_utc(tmp_path):
    """An hour before the clock goes back, and two after it."""
    stamps = ["2024-10-27T01:00+02:00", "2024-10-27T02:00+02:00", "2024-10-27T02:00+0100", "2024-10-27T03:00+01"]
    path = write(tmp_path / "a.csv", stamps[::-1], [3, 2, 1, 0])
    assert values(path) == [0, 1, 2, 3]
    write(path, [*stamps, "2024-10-27T04:00"])
    with pytest.raises(
        ValueError, match=r"line 6: must have an offset from UTC as all times or none, got '2024-10-27T04"
    ):
        values(path)


def test_times_of_a_parquet_file(tmp_path):
    path, stamps = tmp_path / "a.parquet", [datetime(2024, 1, 1) + timedelta(minutes=i) for i in range(20)]
    for kept in (stamps, DAYS[:20]):
        pyarrow.parquet.write_table(pyarrow.table({"at": kept[::-1], "load": list(range(20))[::-1]}), path)
        assert values(path) == list(range(20))
    with pytest.raises(ValueError, match=r"time_format belongs to times as text, got '%Y'"):
        values(path, time_format="%Y")
    pyarrow.parquet.write_table(pyarrow.table({"at": [None, *stamps[1:]], "load": list(range(20))}), path)
    with pytest.raises(ValueError, match=r"column 'at', row 0: must be a time, got none"):
        values(path)


@pytest.mark.parametrize(
    ("stamps", "options", "message"),
    [
        (
            ["31.12.2021", "01.01.2022"],
            {},
            r"line 2: must be an ISO date .*, got '31\.12\.2021'; time_format, such as %d",
        ),
        (["2021-12-31", None, None, "01.01.2022"], {}, r"line 5: must be an ISO date .*, got '01\.01\.2022'"),
        (["2021-12-31", "2022-13-01"], {}, r"line 3: must be an ISO date .*, got '2022-13-01'"),
        (["1", "2", "three"], {}, r"line 4: must be a number, got 'three'"),
        (["1", "2", ""], {}, r"line 4: must be a finite number, got ''"),
        (
            ["31.12.2021", "2022-01-01"],
            {"time_format": "%d.%m.%Y"},
            r"line 3: must be a time '%d\.%m\.%Y', got '2022-01",
        ),
        (["2", "1", None, "1"], {}, r"line 5: a series must have one row per time, got 1 twice; with fill, the last"),
        (
            ["1", "2", None, "4", "5", "6"],
            {},
            r"line 5: 4 follows 2, a gap, for steps are of 1; fill = forward, linear, zero or",
        ),
        (["2024-01-01", "2024-01-02", "2024-01-05", "2024-01-06"], {}, r"line 4: .* for steps are of 1 days; fill"),
        (["2024-01", "2024-02", "2024-04", "2024-05"], {}, r"line 4: 2024-04 follows 2024-02, .* of 1 months; fill"),
        (
            ["0", "1", "2", "3.5", "5"],
            {"fill": "zero"},
            r"line 5: 3\.5 follows 2, not a whole number of steps of 1; without",
        ),
        (
            ["0", "1", "2", "1000000000"],
            {"fill": "zero"},
            r"line 5: .*, 999,999,998 steps of 1, too many to fill in a file",
        ),
        (
            ["1", "2"],
            {"fill": "backward"},
            r"fill must be one of .*'zero', 'masked', got 'backward'",
        ),
        (["1", "2"], {"time": None, "time_format": "%d"}, r"time_format belongs to a column of times, got '%d' and no"),
    ],
)
def test_times_that_are_refused(tmp_path, stamps, options, message):
    path = write(tmp_path / "a.csv", stamps)
    with pytest.raises(ValueError, match=message):
        values(path, **options)


@pytest.mark.parametrize(
    ("fill", "expected"),
    [
        ("forward", [10, 20, 20, 20, 60, 60, 80, 90, 100, 110]),
        ("linear", [10, 20, 33.333, 46.667, 60, 70, 80, 90, 100, 110]),
        ("zero", [10, 20, 0, 0, 60, 0, 80, 90, 100, 110]),
    ],
)
def test_gaps_missing_values_and_repeated_times_are_filled_on_demand(tmp_path, fill, expected):
    stamps = ["3", "1", "2", "5", "6", "7", "8", "9", "2", "10"]  # no 4, and 2 twice
    loads = ["", "10", "15", "60", "NA", "80", "90", "100", "20", "110"]
    path = write(tmp_path / "a.csv", stamps, loads)
    data = load("series", path=path, **{**OPTIONS, "fill": fill})
    np.testing.assert_allclose(data.splits["train"].values[:, 0], expected, atol=1e-3)
    assert f"1 missing steps and 2 missing values filled ({fill}), 1 repeated times dropped" in data.note


def test_each_series_is_filled_by_itself(tmp_path):
    path = tmp_path / "a.csv"
    rows = [("a", 0, 1), ("a", 1, 2), ("b", 100, 5), ("b", 103, 8), ("b", 104, 9), ("a", 2, 3), ("a", 3, 4)]
    path.write_text("\n".join(["id,at,load", *(",".join(map(str, row)) for row in rows)]))
    assert values(path, series="id", fill="linear") == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    path.write_text(path.read_text().replace("b,100,5", "b,100,"))
    with pytest.raises(ValueError, match=r"column 'load', line 4: is missing, and fill = forward needs a value before"):
        values(path, series="id", fill="forward")
    path.write_text(path.read_text().replace("b,100,", "b,100,5").replace("b,104,9", "b,104,nan"))
    with pytest.raises(ValueError, match=r"column 'load', line 6: is missing, and fill = linear needs a value after"):
        values(path, series="id", fill="linear")
    assert values(path, series="id", fill="forward")[-1] == 8


def test_missing_values_of_arrays(tmp_path):
    array = np.arange(40.0).reshape(2, 20)
    array[1, 3] = np.nan
    np.save(tmp_path / "a.npy", array)
    options = {"path": tmp_path / "a.npy", "task": "forecasting", "window": 2, "standardise": False}
    with pytest.raises(ValueError, match=r"series 1, step 3, channel 0: must be a finite number, got nan; fill ="):
        load("series", **options)
    data = load("series", fill="linear", **options)
    np.testing.assert_array_equal(data.splits["train"].values[:, 0], np.arange(40))
    assert data.note.endswith("1 missing values filled (linear)")
