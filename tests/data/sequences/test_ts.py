import numpy as np
import pytest

from trellisnet.data import load
from trellisnet.data.sequences.inputs import read_inputs
from trellisnet.data.sequences.ts import read_ts

HEADER = """%# a problem of nobody's
@problemName Tiny

@timeStamps false
@missing false
@univariate false
@dimensions 2
@equalLength false
@classLabel true low high
@data
"""
TRAIN = "1,2,3:4,5,6:low\n-1.5e0, 0:2,3 : high\n\n7:8:low\n"
TEST = "0,1:1,0:high\n"


@pytest.fixture
def write(tmp_path):
    def write(text, name="Tiny_TRAIN.ts"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def test_series_of_unequal_lengths(write):
    train, test = write(HEADER + TRAIN), write(HEADER + TEST, "Tiny_TEST.ts")
    data = load("ts", path=train, test_path=str(test), standardise=False)
    assert (data.task, data.input_size, data.output_size) == ("classification", 2, 2)
    assert data.labels == ("high", "low")
    assert list(data.splits) == ["train", "test"]
    batch = next(iter(data.batches("train", 3)))
    expected = [[[1, 4], [2, 5], [3, 6]], [[-1.5, 2], [0, 3], [0, 0]], [[7, 8], [0, 0], [0, 0]]]
    assert batch.inputs.tolist() == expected
    assert batch.lengths.tolist() == [3, 2, 1]
    assert batch.targets.tolist() == [1, 0, 1]
    (last,) = data.batches("test", 9)
    assert (last.inputs.tolist(), last.targets.tolist()) == ([[[0, 1], [1, 0]]], [0])


def test_training_series_can_be_held_out_and_do_not_count_in_the_scale(write):
    train, test = write(HEADER + TRAIN), write(HEADER + TEST, "Tiny_TEST.ts")
    data = load("ts", path=train, test_path=test, valid_items=1)
    assert {name: len(items) for name, items in data.splits.items()} == {"train": 2, "valid": 1, "test": 1}
    (batch,) = data.batches("train", 2)
    values = np.concatenate([row[:length] for row, length in zip(batch.inputs, batch.lengths, strict=True)])
    np.testing.assert_allclose(values.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(values.std(0), 1, atol=1e-6)
    again = load("ts", path=train, test_path=test, valid_items=1)
    assert again.splits["valid"].lengths.tolist() == data.splits["valid"].lengths.tolist()
    with pytest.raises(ValueError, match="valid_items must leave some of the 3 training series, got 3"):
        load("ts", path=train, test_path=test, valid_items=3)


def test_new_files_are_read_like_those_that_were_trained_on(write):
    train, test = write(HEADER + TRAIN), write(HEADER + TEST, "Tiny_TEST.ts")
    data = load("ts", path=train, test_path=test)
    names, rows = read_inputs(data, test)
    assert names == ["0"]
    np.testing.assert_allclose(data.input_scale.restore(rows[0]), [[0, 1], [1, 0]], atol=1e-6)


@pytest.mark.parametrize("entry", ["@univariate true", "@univariate true\n@equalLength true\n@seriesLength 2"])
def test_one_channel(write, entry):
    series = read_ts(write(f"{entry}\n@classLabel true 1 2\n@data\n1,2:1\n3,4:2\n"))
    assert series.values.tolist() == [[1], [2], [3], [4]]
    assert series.lengths.tolist() == [2, 2]
    assert series.targets.tolist() == ["1", "2"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("@missing false", "@missing true", "line 5: @missing must be false, got 'true'"),
        ("@timeStamps false", "@timeStamps true", "line 4: @timeStamps must be false, got 'true'"),
        ("@missing false", "@targetLabel true", "line 5: @targetLabel must be false, got 'true'"),
        ("@missing false", "@missing maybe so", "line 5: @missing must be false, got 'maybe so'"),
        ("@univariate false", "@univariate no", "line 6: @univariate must be true or false, got 'no'"),
        ("@dimensions 2", "@dimensions two", "line 7: @dimensions must be an integer >= 1, got 'two'"),
        ("@dimensions 2", "@dimension 2", "line 7: @dimension is not known in a header"),
        ("@dimensions 2", "@missing false", "line 7: @missing must occur once"),
        ("@dimensions 2", "dimensions 2", "line 7: must begin with @, # or % before @data, got 'dimensions 2'"),
        ("@dimensions 2", "@dimensions 3", "line 11: must have 3 channels and a label, got 2 channels"),
        ("@classLabel true low high", "@classLabel false", "line 9: @classLabel must be true and at least two labels"),
        ("@classLabel true low high\n", "", "line 9: must follow a line @classLabel"),
        ("@data\n", "", "line 10: must begin with @, # or % before @data"),
        ("@data\n" + TRAIN, "", "must have a line @data"),
        (TRAIN, "", "has no series after @data"),
        (":low", ":middle", "line 11: must end in one of the labels low, high, got 'middle'"),
        ("7:8:low", "7:8,9:low", "line 14, channel 2: must have 1 steps, as channel 1, got 2"),
        ("7:8:low", "7:low", "line 14: must have 2 channels and a label, got 1 channels"),
        ("7:8:low", "low", "line 14: must have 2 channels and a label, got 0 channels"),
        ("-1.5e0", "?", r"line 12, channel 1, step 1: must be a finite number, got '\?'"),
        (", 0:", ",:", "line 12, channel 1, step 2: must be a finite number, got ''"),
        (", 0:", ", NaN:", "line 12, channel 1, step 2: must be a finite number, got 'NaN'"),
        ("@equalLength false", "@equalLength true", "line 12: must have 3 steps, the length of all series, got 2"),
        ("@equalLength false", "@seriesLength 4", "line 11: must have 4 steps, the length of all series, got 3"),
        ("@dimensions 2\n@equalLength false\n", "", None),
    ],
)
def test_errors_name_the_line(write, old, new, message):
    text = (HEADER + TRAIN).replace(old, new, 1)
    assert text != HEADER + TRAIN
    if message is None:  # not declared
        assert read_ts(write(text)).values.shape == (6, 2)
        return
    with pytest.raises(ValueError, match=rf"Tiny_TRAIN\.ts[,:] {message}"):
        read_ts(write(text))


def test_two_files_must_fit_together(write, tmp_path):
    train = write(HEADER + TRAIN)
    other = write("@univariate true\n@classLabel true low high\n@data\n1,2:low\n", "other.ts")
    with pytest.raises(ValueError, match=r"other\.ts: must have 2 channels, as .*Tiny_TRAIN\.ts, got 1"):
        load("ts", path=train, test_path=other)
    other = write(HEADER.replace("low high", "low top") + "1:2:top\n", "other.ts")
    with pytest.raises(ValueError, match=r"other\.ts: must have labels that .*Tiny_TRAIN\.ts has, got 'top'"):
        load("ts", path=train, test_path=other)
    with pytest.raises(FileNotFoundError, match="path must be a file"):
        load("ts", path=train, test_path=tmp_path / "none.ts")
    with pytest.raises(ValueError, match="root belongs to the benchmarks' files; the dataset 'ts' needs path"):
        load("ts", tmp_path, path=train, test_path=train)
