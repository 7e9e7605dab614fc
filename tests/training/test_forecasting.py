"""Forecasts of own series: complete models, covariates, and the naive forecasts that they must beat."""

import json
import re
import shutil

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch

from trellisnet import TrainingConfig, TrellisRegressor, fit, predict
from trellisnet.cli import main
from trellisnet.data import load
from trellisnet.training.progress import Progress

HOURS = np.arange("2024-01-01T00", "2024-01-09T08", dtype="datetime64[h]")  # 200 hours
LOAD = 100 + 20 * np.sin(np.arange(200) * np.pi / 4) + np.random.default_rng(0).normal(size=200)
HEAT = np.random.default_rng(1).normal(-5, 3, size=200)
OPTIONS = {
    "name": "series",
    "task": "forecasting",
    "values": ["heat", "load"],
    "targets": ["load"],
    "time": "hour",
    "time_format": "%d.%m.%Y %H",
    "separator": ";",
    "decimal": ",",
    "window": 10,
    "horizon": 3,
    "season": 8,
}
CONFIG = TrainingConfig(epochs=1, batch_size=16, evaluation_batch=7)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    torch.set_default_dtype(torch.float32)
    monkeypatch.setattr(Progress, "say", lambda self, text: self.log(text))


def write(path, rows=slice(None), hours=HOURS):
    """A table as a German spreadsheet writes it."""
    lines = ["hour;load;heat"]
    for hour, value, heat in zip(hours[rows].tolist(), LOAD[rows], HEAT[rows], strict=True):
        lines.append(
            f"{hour:%d.%m.%Y %H};{value:.6f};{heat:.6f}".replace(".", ",").replace(
                f"{hour:%d,%m,%Y}", f"{hour:%d.%m.%Y}"
            )
        )
    path.write_text("\n".join(lines))
    return path


def loaded(path, **options):
    return load(**{**OPTIONS, "path": path, **options})


def trained(tmp_path, **options):
    path = write(tmp_path / "train.csv")
    model = TrellisRegressor(2, 6, 4, num_values=3)
    return fit(model, {**OPTIONS, "path": path, **options}, CONFIG, tmp_path / "run")


def test_targets_and_covariates(tmp_path):
    path = write(tmp_path / "train.csv")
    data = loaded(path, standardise=False)
    assert (data.input_size, data.output_size) == (2, 3)
    inputs, targets = data.splits["train"].take(np.array([0, 5]))
    for row, start in enumerate((0, 5)):
        np.testing.assert_allclose(inputs[row, :, 0], HEAT[start : start + 10], atol=1e-4)
        np.testing.assert_allclose(inputs[row, :, 1], LOAD[start : start + 10], atol=1e-4)
        np.testing.assert_allclose(targets[row], LOAD[start + 10 : start + 13], atol=1e-4)
    scaled = loaded(path)
    np.testing.assert_allclose(scaled.target_scale.mean, [LOAD[:160].mean()] * 3, atol=1e-5)
    inputs, targets = scaled.splits["test"].take(np.array([0]))
    np.testing.assert_allclose(scaled.target_scale.restore(targets)[0], LOAD[180:183], atol=1e-3)
    with pytest.raises(ValueError, match=r"targets must be some of values in forecasting, \['heat'\], got 'load'"):
        loaded(path, values="heat")
    with pytest.raises(ValueError, match=r"season must be at most window = 10, got 11"):
        loaded(path, season=11)


@pytest.mark.parametrize("which", ["best", "last"])
def test_the_folder_of_a_model_is_enough(tmp_path, which):
    run = trained(tmp_path)
    scale = loaded(tmp_path / "train.csv").input_scale
    new = write(tmp_path / "new.csv", slice(20, 60))
    expected = predict(run, new, which=which)
    shutil.copytree(run.folder / which, tmp_path / "elsewhere")
    shutil.rmtree(run.folder)
    (tmp_path / "train.csv").unlink()
    found = predict(tmp_path / "elsewhere", new)
    assert found == expected
    assert list(found) == ["series", "step", "load"]
    model = TrellisRegressor.from_pretrained(tmp_path / "elsewhere")
    window = torch.from_numpy(scale.apply(np.stack([HEAT[50:60], LOAD[50:60]], axis=1)))[None]
    standardised = model.predict(window)[0].numpy()
    np.testing.assert_allclose(found["load"], standardised * scale.deviation[1] + scale.mean[1], rtol=1e-5)
    arguments = ["--input", str(new), "--output", str(tmp_path / "out.csv")]
    assert main(["predict", str(tmp_path / "elsewhere"), *arguments]) == 0
    with pytest.raises(ValueError, match=r"which belongs to a run, and .*elsewhere is a single model: got 'last'"):
        predict(tmp_path / "elsewhere", new, which="last")


def test_a_model_refuses_files_with_another_step(tmp_path):
    run = trained(tmp_path)
    days = np.arange("2024-01-01", "2024-07-19", dtype="datetime64[D]").astype("datetime64[h]")
    with pytest.raises(
        ValueError, match=r"line 3: 02\.01\.2024 00 follows 01\.01\.2024 00, a gap, for steps are of 1 hours"
    ):
        predict(run, write(tmp_path / "new.csv", hours=days))


def test_a_model_of_a_csv_file_reads_parquet_files(tmp_path):
    path = table(tmp_path / "train.csv", LOAD.round(4), HEAT.round(4))
    options = {name: OPTIONS[name] for name in ("name", "task", "values", "time", "separator", "window", "horizon")}
    run = fit(TrellisRegressor(2, 6, 4, num_values=6), {**options, "path": path}, CONFIG, tmp_path / "run")
    columns = {"hour": list(range(200)), "load": LOAD.round(4), "heat": HEAT.round(4)}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "new.parquet")
    assert predict(run, tmp_path / "new.parquet") == predict(run, path)


def naive_errors(first, last, standardised):
    """Mean squared errors of the last value and of the value 8 hours before, of all windows with targets in a range."""
    values = (LOAD - LOAD[:160].mean()) / (LOAD[:160].std() if standardised else 1)
    found = {"last value": [], "last season of 8": []}
    for start in range(first, last - 2):
        for ahead in range(3):
            found["last value"].append(values[start + ahead] - values[start - 1])
            found["last season of 8"].append(values[start + ahead] - values[start + ahead - 8])
    return {name: np.square(errors).mean() for name, errors in found.items()}


@pytest.mark.parametrize("standardise", [True, False])
def test_naive_forecasts_stand_beside_the_result(tmp_path, capsys, standardise):
    run = trained(tmp_path, standardise=standardise)
    result = json.loads((run.folder / "result.json").read_text())
    for split, first, last in (("valid", 160, 180), ("test", 180, 200)):
        expected = naive_errors(first, last, standardise)
        assert {name: errors["mse"] for name, errors in result["naive"][split].items()} == pytest.approx(
            expected, rel=1e-4
        )
    units = "of standardised values" if standardise else "in the units of the data"
    assert result["protocol"] == f"every sequence of the split, errors {units}"
    log = (run.folder / "log.txt").read_text()
    error = f"{result['naive']['test']['last season of 8']['mse']:.4f}"
    assert f"naive forecast, last season of 8, test: mse {error}" in log
    assert units in log
    report = (run.folder / "report.html").read_text()
    assert re.search(
        r"mse of the naive forecast, last value.*mae of the naive forecast, last season of 8", report, re.S
    )
    assert units in report


def test_the_command_evaluate_prints_them_too(tmp_path, capsys):
    path = write(tmp_path / "train.csv")
    flags = [
        part
        for name, value in OPTIONS.items()
        if name not in ("name", "task")
        for part in (f"--data.options.{name}", value if isinstance(value, str) else json.dumps(value))
    ]
    small = ["--model.hidden_size", "4", "--model.num_layers", "2", "--model.dilation", "1", "--training.epochs", "1"]
    where = ["--data.options.path", str(path), "--to", str(tmp_path / "run")]
    assert main(["train", "my-series", *where, *flags, *small]) == 0
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr().out
    assert "test, naive forecast, last value: mse " in printed
    assert "errors of standardised values" in printed


def table(path, loads, heats):
    lines = [f"{i};{load};{heat}" for i, (load, heat) in enumerate(zip(loads, heats, strict=True))]
    path.write_text("\n".join(["hour;load;heat", *lines]))
    return path


AHEAD = {"time_format": None, "decimal": None, "future": "heat", "season": None}


def test_columns_that_are_known_ahead(tmp_path):
    path = table(tmp_path / "train.csv", LOAD.round(4), HEAT.round(4))
    data = loaded(path, **AHEAD, standardise=False)
    for items in data.splits.values():
        inputs, targets = items.take(np.arange(len(items)))
        for row, start in enumerate(items.starts):
            np.testing.assert_allclose(inputs[row, :, 0], HEAT[start + 3 : start + 13], atol=1e-3)
            np.testing.assert_allclose(inputs[row, :, 1], LOAD[start : start + 10], atol=1e-3)
            np.testing.assert_allclose(targets[row], LOAD[start + 10 : start + 13], atol=1e-3)
    for options, message in (
        ({"future": "load"}, "future must be some of values, but not of targets, got 'load'"),
        ({"targets": None}, "future must be some of values, but not of targets, got 'heat'"),
        ({"future": "wind"}, "future must be some of values, but not of targets, got 'wind'"),
        ({"horizon": 11}, "horizon must be at most window = 10 with future, got 11"),
    ):
        with pytest.raises(ValueError, match=message):
            loaded(path, **{**AHEAD, **options})


def test_forecasts_with_columns_that_are_known_ahead(tmp_path):
    path = table(tmp_path / "train.csv", LOAD.round(4), HEAT.round(4))
    model = TrellisRegressor(2, 6, 4, num_values=3)
    options = {**OPTIONS, **AHEAD, "path": path, "fill": "linear"}
    run = fit(model, {name: value for name, value in options.items() if value is not None}, CONFIG, tmp_path / "run")
    scale = loaded(path, **AHEAD).input_scale
    new, later, heats = tmp_path / "new.csv", [""] * 3, HEAT[:30].round(4)
    loads = LOAD[:27].round(4).tolist()
    found = predict(run, table(new, [*loads, *later], heats))
    window = np.stack([heats[20:30], loads[17:27]], axis=1)
    standardised = model.predict(torch.from_numpy(scale.apply(window))[None])[0].numpy()
    np.testing.assert_allclose(found["load"], standardised * scale.deviation[1] + scale.mean[1], rtol=1e-5)
    assert predict(run, np.stack([heats, [*loads, 0, 0, 0]], axis=1)[None])["load"] == pytest.approx(found["load"])
    straight = [*loads[:22], (loads[21] + loads[23]) / 2, *loads[23:]]
    filled = predict(run, table(new, [*loads[:22], "", *loads[23:], *later], heats))
    assert filled["load"] == pytest.approx(predict(run, table(new, [*straight, *later], heats))["load"])
    for values, message in (
        (
            [*loads, "", 1, ""],
            r"column 'load', line 30: must be empty in the last 3 rows of a series, those to forecast",
        ),
        ([*loads[:26], *later, ""], r"column 'load', line 28: is missing, and fill = linear needs a value after it"),
        ([*loads[:9], *later], r"series '' must have at least window = 10 and horizon = 3 steps, got 12"),
        ([*later], r"column 'heat', line 4: must be in a series of more than 3 rows, those to forecast"),
    ):
        with pytest.raises(ValueError, match=message):
            predict(run, table(new, values, heats[: len(values)]))


def test_missing_values_before_the_forecast_are_refused_without_fill(tmp_path):
    path = table(tmp_path / "train.csv", LOAD.round(4), HEAT.round(4))
    options = {name: value for name, value in {**OPTIONS, **AHEAD, "path": path}.items() if value is not None}
    run = fit(TrellisRegressor(2, 6, 4, num_values=3), options, CONFIG, tmp_path / "run")
    loads = [*LOAD[:20].round(4), "", *LOAD[21:27].round(4), "", "", ""]
    with pytest.raises(ValueError, match=r"column 'load', line 22: must be a finite number, got none; fill = forward"):
        predict(run, table(tmp_path / "new.csv", loads, HEAT[:30].round(4)))


def test_a_season_shorter_than_the_horizon_is_repeated(tmp_path):
    run = trained(tmp_path, season=2, standardise=False)
    found = json.loads((run.folder / "result.json").read_text())["naive"]["test"]["last season of 2"]["mse"]
    errors = [LOAD[start + ahead] - LOAD[start - 2 + ahead % 2] for start in range(180, 198) for ahead in range(3)]
    assert found == pytest.approx(np.square(errors).mean(), rel=1e-4)
