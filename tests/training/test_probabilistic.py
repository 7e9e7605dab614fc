"""Forecasts with quantiles or a distribution: metrics, columns, resumption, naive intervals, and backtests."""

import csv
import json
import math
import re
import shutil

import numpy as np
import pytest
import torch

from trellisnet import SequenceRegressor, TrainingConfig, TrellisRegressor, backtest, fit, predict
from trellisnet.baselines.rnn import GruBody
from trellisnet.cli import main
from trellisnet.data import load
from trellisnet.training.progress import Progress
from trellisnet.training.reporting.intervals import interval_chart
from trellisnet.training.tasks.forecasts import NaiveForecasts, measures, nominal_coverage
from trellisnet.training.trained import load_task

LEVELS = [0.1, 0.5, 0.9]
OPTIONS = {"name": "series", "task": "forecasting", "values": ["heat", "load"], "targets": ["load"]}
OPTIONS |= {"series": "house", "window": 10, "horizon": 3, "season": 4}
CONFIG = TrainingConfig(epochs=1, batch_size=16, evaluation_batch=7)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    torch.set_default_dtype(torch.float32)
    monkeypatch.setattr(Progress, "say", lambda self, text: self.log(text))


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Two houses with 200 and 150 hours."""
    path, generator = tmp_path_factory.mktemp("data") / "houses.csv", np.random.default_rng(0)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["house", "heat", "load"])
        for house, hours in (("a", 200), ("b", 150)):
            for hour in range(hours):
                load_ = 100 + 20 * math.sin(hour * math.pi / 2) + generator.normal()
                rows.writerow([house, generator.normal(), load_])
    return path


@pytest.fixture(scope="module", params=[{"quantiles": LEVELS}, {"distribution": "student-t"}], ids=str)
def run(request, table, tmp_path_factory):
    torch.set_default_dtype(torch.float32)
    model = TrellisRegressor(2, 6, 3, num_values=3, **request.param)
    return fit(model, {**OPTIONS, "path": table}, CONFIG, tmp_path_factory.mktemp("runs") / "run")


def test_measures_one_by_one():
    torch.manual_seed(0)
    point, targets = torch.randn(5, 4, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)
    quantiles = torch.randn(5, 4, 3, dtype=torch.float64).sort(-1).values
    found = measures(point, targets, quantiles, LEVELS)
    for i in range(5):
        for j in range(4):
            y, low, high = targets[i, j], quantiles[i, j, 0], quantiles[i, j, 2]
            losses = [
                t * (y - q) if y >= q else (1 - t) * (q - y) for t, q in zip(LEVELS, quantiles[i, j], strict=True)
            ]
            assert abs(found["pinball"][i, j] - sum(losses) / 3) < 1e-10
            assert found["coverage"][i, j] == float(low <= y <= high)
            assert abs(found["mse"][i, j] - (point[i, j] - y) ** 2) < 1e-10
            assert abs(found["mae"][i, j] - abs(point[i, j] - y)) < 1e-10
    below = measures(point, targets, quantiles[..., :1], [0.1])["coverage"]
    assert torch.equal(below, (targets <= quantiles[..., 0]).double())
    assert (nominal_coverage(LEVELS), nominal_coverage([0.3])) == (pytest.approx(0.8), 0.3)


def test_metrics_of_a_split(run):
    task = load_task(run.folder)
    found = {name: [] for name in run.metrics["test"]}
    for batch in task.data.batches("test", 1):
        prediction = run.model(batch.inputs).prediction.detach()
        for name, values in task.measures(prediction, batch.targets).items():
            found[name] += values.flatten().tolist()
    assert "nll" in found or list(found) == ["pinball", "mse", "mae", "coverage"]
    assert len(found["mse"]) == 3 * len(task.data.splits["test"])
    for name, values in found.items():
        assert run.metrics["test"][name] == pytest.approx(np.mean(values), rel=1e-5)
    facts = json.loads((run.folder / "task.json").read_text())
    assert facts["metric"] == ("nll" if "nll" in found else "pinball")


def test_naive_intervals_are_errors_of_the_training_split(table):
    data = load(**{**OPTIONS, "path": table})
    naive = NaiveForecasts(data, LEVELS)
    items = data.splits["train"]
    inputs, targets = items.take(np.arange(len(items)))
    for step in range(3):
        errors = targets[:, step] - inputs[:, 10 - 4 + step, 1]  # the same hour of the last season
        np.testing.assert_allclose(naive.errors["last season of 4"][step], np.quantile(errors, LEVELS), atol=1e-6)
    ours = naive.measures(torch.from_numpy(inputs), torch.from_numpy(targets))["last season of 4"]
    assert ours["coverage"].mean().item() == pytest.approx(0.8, abs=0.02)


def test_columns_in_the_units_of_the_file(run, table, tmp_path):
    shutil.copytree(run.folder / "best", tmp_path / "copied")
    found = predict(tmp_path / "copied", table)
    assert list(found) == ["series", "step", "load (0.1)", "load (0.5)", "load (0.9)"]
    assert found["series"] == ["a"] * 3 + ["b"] * 3
    data = load(**{**OPTIONS, "path": table})
    scale = data.target_scale
    rows = np.loadtxt(table, delimiter=",", skiprows=1, usecols=(1, 2))
    windows = [data.input_scale.apply(rows[190:200]), data.input_scale.apply(rows[340:350])]
    quantiles = run.model.predict(np.stack(windows)).numpy()  # (2, 3, 3)
    for i in range(6):
        expected = quantiles[i // 3, i % 3] * scale.deviation[i % 3] + scale.mean[i % 3]
        np.testing.assert_allclose([found[f"load ({level})"][i] for level in LEVELS], expected, rtol=1e-5)
        assert list(expected) == sorted(expected)


def test_values_at_every_step_have_quantiles(tmp_path):
    generator = np.random.default_rng(0)
    x = [generator.normal(size=(length, 2)) for length in (4, 6, 9, 5, 7, 6, 8, 9, 5, 4, 6, 7)]
    model = SequenceRegressor(GruBody(2, hidden_size=4), 1, each_step=True, quantiles=[0.2, 0.8])
    result = fit(model, (x, [row[:, :1] for row in x]), TrainingConfig(epochs=1, batch_size=4), tmp_path / "run")
    found = predict(result, x[:2])
    assert list(found) == ["series", "step", "value 1 (0.2)", "value 1 (0.8)"]
    assert found["step"] == [1, 2, 3, 4, 1, 2, 3, 4, 5, 6]
    direct = model.predict(torch.from_numpy(x[1]).float()[None])[0, :, 0]
    np.testing.assert_allclose(found["value 1 (0.8)"][4:], direct[:, 1], atol=1e-6)
    shown = json.loads((result.folder / "result.json").read_text())["intervals"]
    assert np.shape(shown[0]["quantiles"]) == (len(shown[0]["target"]), 2)


@pytest.mark.charts
def test_intervals_are_drawn(run):
    pytest.importorskip("matplotlib")
    result = json.loads((run.folder / "result.json").read_text())
    assert len(result["intervals"]) == 3
    first = result["intervals"][0]
    assert len(first["past"]) == 9
    assert np.shape(first["quantiles"]) == (3, 3)
    task = load_task(run.folder)
    truth = task.data.target_scale.restore(task.data.splits["test"].take(np.array([0]))[1][0])
    np.testing.assert_allclose(first["target"], truth, rtol=1e-5)
    drawn = interval_chart(first)
    assert "0.1 to 0.9" in drawn
    report = (run.folder / "report.html").read_text()
    assert report.count("Prediction intervals: load") >= 3
    assert "coverage of the naive forecast, last season of 4" in report


def test_a_backtest_is_the_mean_of_single_forecasts(run):
    task = load_task(run.folder)
    found = backtest(run, 5)
    items = task.data.splits["test"]
    tables = []
    for first, length in ((0, 200), (200, 150)):
        held = length // 10
        origins = np.linspace(length - held, length - 3, 5).round().astype(int)
        assert found.origins["a" if first == 0 else "b"] == origins.tolist()
        for origin in origins:
            window = torch.from_numpy(items.values[first + origin - 10 : first + origin])[None]
            truth = torch.from_numpy(items.values[first + origin : first + origin + 3, 1])
            tables.append((run.model.predict(window)[0, :, 1] - truth).abs().numpy())
    table = np.stack(tables).reshape(2, 5, 3)
    np.testing.assert_allclose(found.by_origin["model"]["mae"], table.mean((0, 2)), rtol=1e-4)
    np.testing.assert_allclose(found.by_step["model"]["mae"], table.mean((0, 1)), rtol=1e-4)
    assert found.overall["model"]["mae"] == pytest.approx(table.mean(), rel=1e-4)
    assert set(found.by_step) == {"model", "last value", "last season of 4"}
    every = backtest(run, 13)  # all origins of the shorter series
    assert every.origins["b"] == list(range(135, 148))


def test_the_command(run, tmp_path, capsys):
    file = tmp_path / "backtest.json"
    assert main(["evaluate", str(run.folder), "--backtest", "4", "--output", str(file)]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^origin .*pinball, model .*pinball, last value", printed, re.MULTILINE)
    assert re.search(r"^step .*mae, last season of 4$", printed, re.MULTILINE)
    assert "4 origins per series" in printed
    content = json.loads(file.read_text())
    assert len(content["by_step"]["model"]["coverage"]) == 3
    assert len(content["by_origin"]["last value"]["pinball"]) == 4


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--backtest", "14"],
            "backtest must be at most 13, the number of forecasts of series 'b' in this split, got 14",
        ),
        (["--backtest", "0"], "backtest must be an integer >= 1, got 0"),
        (["--output", "x.json"], "--output belongs to --backtest, which is not given"),
        (["--backtest", "2", "--depths", "1,2"], "--depths cannot be chosen with --backtest"),
        (["--backtest", "2", "--split", "other"], "--split must be one of train, valid, test, got 'other'"),
    ],
)
def test_wrong_backtests_take_one_line(run, flags, message, capsys):
    assert main(["evaluate", str(run.folder), *flags]) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert "\n" not in error


def test_train_and_resume_by_command(table, tmp_path, capsys):
    given = {"path": table, "values": "[load]", "series": "house", "window": 8, "horizon": 2}
    flags = [part for name, value in given.items() for part in (f"--data.options.{name}", str(value))]
    flags += ["--model.hidden_size", "6", "--model.num_layers", "3", "--model.dilation", "1", "--training.batch_size"]
    flags += ["64", "--model.quantiles", "[0.1, 0.9]", "--to"]
    assert main(["train", "my-series", *flags, str(tmp_path / "two"), "--training.epochs", "1"]) == 0
    assert main(["train", "--resume", str(tmp_path / "two"), "--training.epochs", "2"]) == 0
    ours = json.loads((tmp_path / "two" / "result.json").read_text())["metrics"]
    assert set(ours["test"]) == {"pinball", "mse", "mae", "coverage"}
    assert main(["evaluate", str(tmp_path / "two"), "--split", "test"]) == 0
    capsys.readouterr()
    for wrong, message in {
        "[0.9, 0.1]": "quantiles must be ascending numbers between 0 and 1, got [0.9, 0.1]",
        "[0.0, 0.5]": "quantiles must be ascending numbers between 0 and 1, got [0.0, 0.5]",
        "high": "model.quantiles must be a list of numbers",
    }.items():
        changed = [wrong if flag == "[0.1, 0.9]" else flag for flag in flags]
        assert main(["train", "my-series", *changed, str(tmp_path / "wrong")]) == 2
        assert message in capsys.readouterr().err
    both = ["train", "my-series", *flags, str(tmp_path / "wrong"), "--model.distribution", "normal"]
    assert main(both) == 2
    assert "quantiles and distribution cannot both be chosen" in capsys.readouterr().err


def test_quantiles_and_backtests_with_columns_that_are_known_ahead(table, tmp_path):
    """The window of a column that is known ahead ends at the last step to forecast."""
    options = {**OPTIONS, "path": table, "future": "heat", "season": None}
    given = {name: value for name, value in options.items() if value is not None}
    run = fit(TrellisRegressor(2, 6, 3, num_values=3, quantiles=LEVELS), given, CONFIG, tmp_path / "run")
    rows = np.loadtxt(table, delimiter=",", skiprows=1, usecols=(1, 2))
    scale = load(**given).input_scale
    values = scale.apply(rows).astype(np.float32)

    def quantiles(origin):
        window = np.stack([values[origin - 7 : origin + 3, 0], values[origin - 10 : origin, 1]], axis=1)
        return run.model.predict(torch.from_numpy(window)[None])[0].numpy()  # (3 steps, 3 levels)

    found = backtest(run, 4)
    origins = [*found.origins["a"], *(200 + origin for origin in found.origins["b"])]
    errors = [np.abs(quantiles(origin)[:, 1] - values[origin : origin + 3, 1]) for origin in origins]
    np.testing.assert_allclose(found.by_step["model"]["mae"], np.mean(errors, 0), rtol=1e-4)
    new = tmp_path / "new.csv"
    with new.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["house", "heat", "load"])
        writer.writerows(["c", heat, "" if i >= 147 else amount] for i, (heat, amount) in enumerate(rows[:150]))
    columns = predict(run, new)
    for i, level in enumerate(LEVELS):
        expected = quantiles(147)[:, i] * scale.deviation[1] + scale.mean[1]
        np.testing.assert_allclose(columns[f"load ({level})"], expected, rtol=1e-5)
    shown = json.loads((run.folder / "result.json").read_text())["intervals"]
    assert np.shape(shown[0]["quantiles"]) == (3, 3)
