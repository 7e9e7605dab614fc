"""Missing values that are masked: marked in the inputs, and without influence on losses and metrics as targets."""

import json
import math

import numpy as np
import pytest
import torch

from trellisnet import TrainingConfig, TrellisClassifier, TrellisRegressor, backtest, fit, predict
from trellisnet.cli import main
from trellisnet.data import load
from trellisnet.data.sequences.filling import repeated_last, with_marks
from trellisnet.training.trained import load_task

N = math.nan
LOAD = np.sin(np.arange(120) / 3) * 5 + 20
MISSING = {7, 8, 30, 50, 51, 52, 53, 54, 70, 99, 112}  # rows without a load; 40 has no row at all
OPTIONS = {"task": "forecasting", "values": ["load", "heat"], "targets": ["load"], "time": "hour", "fill": "masked"}
WINDOWS = {"window": 6, "horizon": 2}


@pytest.fixture(autouse=True)
def _as_users_have_it(request):
    if "loss" not in request.node.name:
        torch.set_default_dtype(torch.float32)


@pytest.fixture
def path(tmp_path):
    rows = [f"{i},{'' if i in MISSING else f'{LOAD[i]:.6f}'},{i % 4}" for i in range(120) if i != 40]
    path = tmp_path / "load.csv"
    path.write_text("\n".join(["hour,load,heat", *rows, ""]))
    return path


def truth():
    return np.array([N if i in MISSING | {40} else LOAD[i] for i in range(120)])


def test_marks():
    marked = with_marks(np.array([[1.0, N], [N, 3.0]]))
    assert marked.tolist() == [[1, 0, 1, 0], [0, 3, 0, 1]]
    again = torch.tensor([[[N, 1.0], [2.0, N], [N, N], [4.0, 3.0]]]).numpy()
    assert repeated_last(torch.from_numpy(with_marks(again))).tolist() == [[[0, 1], [2, 1], [2, 1], [4, 3]]]


@pytest.mark.parametrize("options", [{}, {"quantiles": [0.1, 0.5]}, {"distribution": "normal"}])
def test_missing_targets_do_not_count_in_the_loss(options):
    model = TrellisRegressor(2, 4, 2, num_values=3, **options)
    x, targets = torch.randn(4, 5, 2), torch.randn(4, 3)
    missing = torch.tensor([[1, 0, 0], [0, 0, 0], [1, 1, 1], [0, 1, 0]], dtype=torch.bool)
    loss = model(x, torch.where(missing, N, targets)).loss
    prediction = model(x).prediction
    if options:
        expected = model.spread.loss(prediction, targets)[~missing].mean()
    else:
        expected = (prediction - targets)[~missing].square().mean()
    torch.testing.assert_close(loss, expected)
    weights = list(model.parameters())
    pairs = zip(*(torch.autograd.grad(each, weights) for each in (loss, expected)), strict=True)
    for found, wanted in pairs:
        torch.testing.assert_close(found, wanted)
    assert not model(x * N, targets).loss.isfinite()  # a prediction that is not a number is not excused
    nothing = model(x, targets * N).loss
    assert nothing.item() == 0


def test_windows(path):
    data = load("series", path=path, **OPTIONS, **WINDOWS, standardise=False)
    assert (data.input_size, data.channels, data.output_size) == (4, 2, 2)
    assert "1 missing steps and 11 missing values masked" in data.note
    known = truth()
    for items in data.splits.values():
        inputs, targets = items.take(np.arange(len(items)))
        for start, window, ahead in zip(items.starts, inputs, targets, strict=True):
            there = ~np.isnan(known[start : start + 6])
            assert (window[:, 2] == there).all()
            np.testing.assert_allclose(window[:, 0], np.where(there, known[start : start + 6], 0), rtol=1e-5)
            assert (window[:, 3] == (np.arange(start, start + 6) != 40)).all()
            np.testing.assert_allclose(ahead, known[start + 6 : start + 8], rtol=1e-5)
            assert not np.isnan(ahead).all()
    starts = data.splits["train"].starts + 6
    assert {6, 8, 49} <= set(starts.tolist())
    assert not {7, 50, 51, 52, 53} & set(starts.tolist())  # nothing to predict


def naive_error(data):
    """The mean absolute error of the last value that is there, for the values that are there."""
    errors, own = [], (truth() - data.target_scale.mean[0]) / data.target_scale.deviation[0]
    for start in data.splits["test"].starts:
        window = own[start : start + 6]
        last = window[~np.isnan(window)][-1]
        errors += [abs(last - target) for target in own[start + 6 : start + 8] if not np.isnan(target)]
    return np.mean(errors)


def test_the_scale_is_that_of_what_is_there(path):
    data = load("series", path=path, **OPTIONS, **WINDOWS)
    known = truth()
    assert data.input_scale.mean[0] == pytest.approx(np.nanmean(known[:96]))
    assert data.input_scale.deviation[0] == pytest.approx(np.nanstd(known[:96]))


def test_command_line(path, tmp_path, capsys):
    run, out = tmp_path / "run", tmp_path / "out.csv"
    flags = ["--data.options.path", str(path), "--data.options.values", "[load,heat]", "--data.options.time", "hour"]
    flags += ["--data.options.targets", "load", "--data.options.window", "6", "--data.options.horizon", "2"]
    flags += ["--data.options.fill", "masked", "--model.hidden_size", "4", "--model.num_layers", "2"]
    flags += ["--model.quantiles", "[0.1,0.5,0.9]", "--training.epochs", "1", "--training.batch_size", "8"]
    assert main(["train", "my-series", *flags, "--to", str(run)]) == 0
    assert main(["evaluate", str(run), "--backtest", "3"]) == 0
    task = load_task(run, "best")
    assert task.naive("test")["last value"]["mae"] == pytest.approx(naive_error(task.data), rel=1e-5)
    table = backtest(run, len(task.data.splits["test"]))
    assert table.overall["last value"]["mae"] == pytest.approx(naive_error(task.data), rel=1e-5)
    json.dumps(table.facts(), allow_nan=False)
    new = tmp_path / "new.csv"
    new.write_text("hour,load,heat\n1,20,1\n2,,2\n3,21,3\n5,22,0\n6,,1\n7,25,2\n")
    assert main(["predict", str(run), "--input", str(new), "--output", str(out)]) == 0
    rows = [list(map(float, row.split(",")[1:])) for row in out.read_text().splitlines()[1:]]
    arrays = [[[20, 1], [N, 2], [21, 3], [N, N], [22, 0], [N, 1], [25, 2]]]
    again = predict(run, np.array(arrays))
    assert [row[1] for row in rows] == pytest.approx(again["load (0.1)"], rel=1e-5)
    marked = np.array(arrays)
    marked[0, 5, 0] = 0  # a zero is not a missing value
    assert predict(run, marked)["load (0.1)"] != pytest.approx(again["load (0.1)"], rel=1e-5)
    with pytest.raises(ValueError, match="must have 2 channels"):
        predict(run, np.zeros((1, 6, 4)))
    with pytest.raises(ValueError, match="must be finite numbers"):
        predict(run, np.full((1, 6, 2), np.inf))


def test_whole_series(tmp_path):
    rows = [f"{i},{t},{'' if t == i % 3 else (i + t) % 5},{'ab'[i % 2]}" for i in range(20) for t in range(5) if t != 3]
    path = tmp_path / "kinds.csv"
    path.write_text("\n".join(["id,t,x,kind", *rows, ""]))
    options = {"task": "classification", "values": ["x"], "series": "id", "time": "t", "label": "kind"}
    data = load("series", path=path, fill="masked", **options)
    inputs, _ = data.splits["train"].take(np.arange(3), 5)
    assert inputs.shape == (3, 5, 2)
    assert (inputs[:, :, 1] == 0).sum(1).tolist() == [2, 2, 2]
    assert (inputs[:, 3] == 0).all()
    fitted = fit(TrellisClassifier(2, 4, 2, 2), data, TrainingConfig(epochs=1, batch_size=4), tmp_path / "run")
    assert len(predict(fitted, path)["series"]) == 20
