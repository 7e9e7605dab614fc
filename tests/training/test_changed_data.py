import json

import numpy as np
import pytest
import torch

from tiny import tiny_config, tiny_text
from trellisnet import TrainingConfig, TrellisClassifier, TrellisRegressor
from trellisnet import fit as fit_model
from trellisnet.cli import main
from trellisnet.data.text.data import TextData
from trellisnet.training import fit, tasks
from trellisnet.training.progress import Progress
from trellisnet.vocabulary import Vocabulary

ROWS = np.random.default_rng(0).standard_normal((40, 6))
CONFIG = TrainingConfig(epochs=1, batch_size=8)


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    torch.set_default_dtype(torch.float32)
    monkeypatch.setattr(Progress, "say", lambda self, text: self.log(text))


def write_table(path, rows, labels="ab"):
    lines = ["series,x,kind,size"]
    lines += [f"s{i},{value},{labels[i % 2]},{i}" for i, row in enumerate(rows) for value in row]
    path.write_text("\n".join(lines) + "\n")


def error_of(capsys, *arguments):
    assert main([str(argument) for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_evaluate_names_the_labels_and_the_scale_that_changed(tmp_path, capsys):
    path, run = tmp_path / "own.csv", tmp_path / "run"
    write_table(path, ROWS)
    data = {"name": "series", "path": path, "task": "classification", "values": "x", "label": "kind"}
    fit_model(TrellisClassifier(1, 4, 2, 2), {**data, "series": "series"}, CONFIG, run)
    assert main(["evaluate", str(run)]) == 0
    capsys.readouterr()
    write_table(path, ROWS, "ac")
    error = error_of(capsys, "evaluate", run)
    assert "the data has changed since the training" in error
    assert "labels was ['a', 'b'], now ['a', 'c']" in error
    write_table(path, 2 * ROWS)  # standardised values are the same
    assert "input_scale was {'mean'" in error_of(capsys, "evaluate", run)
    changed = ROWS.copy()
    changed[23, 4] += 1e-3
    write_table(path, changed)
    assert "has changed" in error_of(capsys, "evaluate", run)


def test_predict_notices_a_changed_scale(tmp_path, capsys):
    path, run = tmp_path / "own.csv", tmp_path / "run"
    write_table(path, ROWS)
    data = {"name": "series", "path": path, "task": "regression", "values": "x", "targets": "size", "series": "series"}
    fit_model(TrellisRegressor(1, 4, 2), data, CONFIG, run)
    written = run / "best" / "task.json"
    text = written.read_text()
    facts = json.loads(text)
    arguments = ["predict", run, "--input", path, "--output", tmp_path / "out.csv"]
    for name, value in (("target_scale", {"mean": [0.0], "deviation": [1.0]}), ("labels", ["x"])):
        written.write_text(json.dumps({**facts, "data": {**facts["data"], name: value}}))
        assert f"task.json is damaged: {name} of the data" in error_of(capsys, *arguments)
    missing = {name: value for name, value in facts["data"].items() if name != "input_scale"}
    written.write_text(json.dumps({**facts, "data": missing}))
    assert "task.json is damaged: input_scale of the data" in error_of(capsys, *arguments)
    written.write_text(text)
    assert main([str(argument) for argument in arguments]) == 0


def test_one_token_of_a_text_is_noticed(tmp_path, monkeypatch):
    text = tiny_text(tokens=40_000)
    monkeypatch.setattr(tasks, "load", lambda name, **options: text)
    fit.train_new(tiny_config(batch_size=400), "run", tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()  # as if it had been killed at the end
    changed = text.splits["train"].copy()
    changed[20_001] ^= 1
    text = TextData("tiny", text.vocabulary, {**text.splits, "train": changed})
    with pytest.raises(ValueError, match="the data has changed since the last checkpoint: train has changed"):
        fit.resume(tmp_path / "run")


def test_another_vocabulary_is_named(tmp_path, monkeypatch):
    text = tiny_text()
    monkeypatch.setattr(tasks, "load", lambda name, **options: text)
    fit.train_new(tiny_config(), "run", tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    text = TextData("tiny", Vocabulary(list("ABCDEFG"), "characters"), text.splits)
    with pytest.raises(ValueError, match="since the last checkpoint: vocabulary has changed"):
        fit.resume(tmp_path / "run")
