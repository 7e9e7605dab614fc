"""Every body goes the whole way of a user: train, be killed, go on, evaluate, write or predict, save and load."""

import re

import pytest
import torch
from safetensors.torch import load_file

from tiny import tiny_config, tiny_sequences, tiny_text
from trellisnet.cli import main
from trellisnet.models.bodies import BODIES
from trellisnet.models.language import LanguageModel
from trellisnet.models.sequence import SequenceClassifier
from trellisnet.training import fit, tasks
from trellisnet.training.prediction import predict
from trellisnet.training.progress import Progress

OPTIONS = {"xlstm": {"heads": 1}}  # where the tiny width does not fit the defaults


class Killed(BaseException):
    pass


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    torch.set_default_dtype(torch.float32)
    monkeypatch.setattr(Progress, "say", lambda self, text: self.log(text))


def train_killed(config, folder, step, monkeypatch):
    advance = Progress.advance

    def advance_or_die(self, at, *args):
        advance(self, at, *args)
        if at == step:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "advance", advance_or_die)
        with pytest.raises(Killed):
            fit.train_new(config, "run", folder)
    return fit.resume(folder)


def assert_equal_runs(a, b):
    assert (a / "metrics.jsonl").read_text() == (b / "metrics.jsonl").read_text()
    for name in ("best", "last"):
        ours, theirs = (load_file(run / name / "model.safetensors") for run in (a, b))
        assert all(torch.equal(tensor, theirs[key]) for key, tensor in ours.items())


@pytest.mark.parametrize("task", ["language", "classification"])
@pytest.mark.parametrize("body", BODIES)
def test_the_whole_way(body, task, tmp_path, monkeypatch, capsys):
    is_text = task == "language"
    data = tiny_text() if is_text else tiny_sequences(ragged=True)
    monkeypatch.setattr(tasks, "load", lambda name, **options: data)
    options = {"body": body, "output_dropout": 0.2, **OPTIONS.get(body, {})}
    config = tiny_config(options, text=is_text, epochs=1, save_minutes=0.0)
    fit.train_new(config, "run", tmp_path / "whole")
    run = train_killed(config, tmp_path / "killed", 7, monkeypatch)
    assert_equal_runs(tmp_path / "whole", tmp_path / "killed")
    told = re.search(r"best model, test: (.*) \(", (run.folder / "log.txt").read_text())[1]
    assert main(["evaluate", str(run.folder)]) == 0
    assert f"test: {told}" in capsys.readouterr().out
    kind = LanguageModel if is_text else SequenceClassifier
    model = kind.from_pretrained(run.folder / "best")
    if is_text:
        assert main(["generate", str(run.folder), "--prompt", "ab", "--tokens", "5", "--temperature", "0"]) == 0
        assert capsys.readouterr().out == model.generate("ab", 5) + "\n"
        total = model.score("abca").log_prob.sum().item()
        assert predict(run.folder, ["abca"])["log_probability"] == pytest.approx([total], rel=1e-5)
    else:
        batch = next(iter(data.batches("test", 99)))
        expected = model.predict(batch.inputs, batch.lengths).tolist()
        rows = [row[:length] for row, length in zip(batch.inputs, batch.lengths.tolist(), strict=True)]
        assert predict(run.folder, rows)["label"] == [str(label) for label in expected]
    model.save_pretrained(tmp_path / "copy")
    again = kind.from_pretrained(tmp_path / "copy")
    assert again.config == model.config
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), model.parameters(), strict=True))
