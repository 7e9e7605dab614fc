"""The harness from Python: any model, on data of any form, with everything that the command line has."""

import json
import os
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import distributed, nn

from tiny import tiny_sequences, tiny_text
from trellisnet import TrainingConfig, TrellisClassifier, TrellisLM, TrellisRegressor, fit
from trellisnet.baselines.rnn import GruBody
from trellisnet.cli import main
from trellisnet.models.sequence import SequenceClassifier
from trellisnet.training.loop import Trainer
from trellisnet.training.progress import Progress
from trellisnet.training.signals import Interrupted

GENERATOR = np.random.default_rng(0)
X = GENERATOR.standard_normal((64, 9, 2)).astype(np.float32)
LABELS = (X[:, 0, 0] > 0).astype(np.int64)
RAGGED = [row[: 3 + i % 7] for i, row in enumerate(X)]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    torch.set_default_dtype(torch.float32)
    monkeypatch.setattr(Progress, "say", lambda self, text: self.log(text))


def config(**options):
    return TrainingConfig(**{"epochs": 2, "batch_size": 8, "log_every": 2, "learning_rate": 0.02, **options})


def classifier(**options):
    torch.manual_seed(3)
    return TrellisClassifier(2, 8, num_layers=4, num_classes=2, dilation=[1, 2, 4, 8], **options)


class Own(nn.Module):
    """A user's module with a buffer, which follows nothing but the protocol."""

    def __init__(self, outputs=2, predicts=True):
        super().__init__()
        self.norm, self.out, self.predicts = nn.BatchNorm1d(2), nn.Linear(2, outputs), predicts

    def forward(self, inputs, targets, lengths=None):
        first = self.out(self.norm(inputs[:, 0]))
        loss = nn.functional.cross_entropy(first, targets)
        penalty = 0.01 * self.out.weight.square().sum()
        out = SimpleNamespace(loss=loss + penalty, parts={"main": loss, "decay": penalty})
        if self.predicts:
            out.prediction = first
        return out


def test_arrays_are_learned(tmp_path):
    model = classifier()
    result = fit(model, (X, LABELS), config(epochs=12), tmp_path / "run", valid=0.25, test=0.25, title="first sign")
    assert result.model is model
    assert not model.training
    assert result.metrics["test"]["accuracy"] > 0.8
    for name in ("config.yaml", "metrics.jsonl", "log.txt", "environment.json", "result.json", "report.html"):
        assert (result.folder / name).stat().st_size
    report = (result.folder / "report.html").read_text()
    assert "<h1>first sign</h1>" in report
    assert "run: a TrellisClassifier on arrays, " in report
    best = load_file(result.folder / "best" / "model.safetensors")
    assert all(torch.equal(best[name], tensor) for name, tensor in model.named_parameters())
    loaded = TrellisClassifier.from_pretrained(result.folder / "best")
    assert torch.equal(loaded.predict(torch.tensor(X)), model.predict(torch.tensor(X)))


@pytest.mark.parametrize(
    ("model", "data", "metric"),
    [
        (classifier, (RAGGED, [str(label) for label in LABELS]), "accuracy"),
        (lambda: TrellisRegressor(2, 6, 3, num_values=1), (RAGGED, X[:, 0, 0]), "mse"),
        (lambda: TrellisRegressor(2, 6, 3, 2, each_step=True), (RAGGED, RAGGED), "mse"),
        (lambda: TrellisRegressor(2, 6, 3), {"name": "adding", "steps": 6, "train_items": 40, "test_items": 9}, "mse"),
        (lambda: TrellisLM(7, 4, 6, 3), tiny_text(), "bits"),
        (classifier, tiny_sequences(ragged=True), "accuracy"),
        (lambda: TrellisLM(5, 4, 6, 3), tiny_sequences("tokens"), "accuracy"),
        (Own, (RAGGED, LABELS), "accuracy"),
        (lambda: Own(predicts=False), (X, LABELS), "loss"),
    ],
)
def test_every_kind_of_data(model, data, metric, tmp_path):
    result = fit(model(), data, config(), tmp_path / "run")
    assert metric in result.metrics["valid"]
    assert json.loads((result.folder / "task.json").read_text())["metric"] == metric
    assert (result.folder / "report.html").exists()


def test_steps_beyond_the_end_do_not_count(tmp_path):
    model = TrellisRegressor(2, 6, 3, 2, each_step=True)
    result = fit(model, (RAGGED, RAGGED), config(), tmp_path / "run", valid=(RAGGED, RAGGED))
    errors = [(model.predict(torch.tensor(row)[None])[0] - torch.tensor(row)).square() for row in RAGGED]
    assert result.metrics["valid"]["mse"] == pytest.approx(torch.cat(errors).mean().item(), rel=1e-4)


class Killed(BaseException):
    pass


def kill_at(patch, step):
    advance = Progress.advance

    def advance_or_die(self, at, *args):
        advance(self, at, *args)
        if at == step:
            raise Killed

    patch.setattr(Progress, "advance", advance_or_die)


@pytest.mark.parametrize("model", [lambda: classifier(hidden_dropout=0.3, aux_every=2), Own])
def test_calling_again_goes_on_bit_by_bit(model, tmp_path, monkeypatch):
    options = config(epochs=3, save_minutes=0.0)
    whole = fit(model(), (RAGGED, LABELS), options, tmp_path / "whole")
    for step in (3, 7, 16):
        with monkeypatch.context() as patch:
            kill_at(patch, step)
            with pytest.raises(Killed):
                fit(model(), (RAGGED, LABELS), options, tmp_path / "killed")
    again = fit(model(), (RAGGED, LABELS), options, tmp_path / "killed")
    assert again.metrics == whole.metrics
    assert (again.folder / "metrics.jsonl").read_text() == (whole.folder / "metrics.jsonl").read_text()
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name])


def test_a_run_that_has_ended_is_not_trained_again(tmp_path, monkeypatch):
    first = fit(classifier(), (X, LABELS), config(), tmp_path / "run")
    monkeypatch.setattr(Trainer, "fit", lambda self: pytest.fail("trained again"))
    second = fit(classifier(), (X, LABELS), config(), tmp_path / "run")
    assert second.metrics == first.metrics
    assert "is finished" in (tmp_path / "run" / "log.txt").read_text()
    for name, tensor in first.model.state_dict().items():
        assert torch.equal(tensor, second.model.state_dict()[name])


def test_what_has_changed_is_named(tmp_path):
    fit(classifier(), (X, LABELS), config(), tmp_path / "run")
    with pytest.raises(ValueError, match=r"run was started with training.epochs = 2, got 5: choose another folder"):
        fit(classifier(), (X, LABELS), config(epochs=5), tmp_path / "run")
    with pytest.raises(ValueError, match=r"run was started with model.options.weight_norm = False, got True"):
        fit(classifier(weight_norm=True), (X, LABELS), config(), tmp_path / "run")
    with pytest.raises(ValueError, match="run was started with other data"):
        fit(classifier(), (X + 1, LABELS), config(), tmp_path / "run")


def test_the_command_line_says_how_to_resume(tmp_path, capsys):
    fit(classifier(), (X, LABELS), config(), tmp_path / "run")
    assert main(["train", "--resume", str(tmp_path / "run")]) == 2
    assert "was started from Python: resume it with trellisnet.fit" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    assert "the data was passed from Python" in capsys.readouterr().err


def test_the_command_line_evaluates_a_named_dataset(tmp_path, capsys):
    data = {"name": "adding", "steps": 6, "train_items": 40, "test_items": 9}
    result = fit(TrellisRegressor(2, 6, 3), data, config(), tmp_path / "run")
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    assert f"mse {result.metrics['test']['mse']:.4f}" in capsys.readouterr().out


def test_a_signal_saves_and_stops(tmp_path, monkeypatch):
    step = Trainer._step

    def step_and_signal(self, *args):
        if self.step == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return step(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", step_and_signal)
        with pytest.raises(KeyboardInterrupt) as told:
            fit(classifier(), (X, LABELS), config(), tmp_path / "run")
    assert isinstance(told.value, Interrupted)
    assert f"trellisnet.fit(..., folder='{tmp_path / 'run'}')" in (tmp_path / "run" / "log.txt").read_text()
    assert fit(classifier(), (X, LABELS), config(), tmp_path / "run").metrics


def test_training_in_a_thread(tmp_path):
    found = []
    thread = threading.Thread(target=lambda: found.append(fit(classifier(), (X, LABELS), config(), tmp_path / "run")))
    thread.start()
    thread.join()
    assert found[0].metrics


def test_the_parts_of_the_loss_are_logged(tmp_path):
    lm = TrellisLM(7, 4, 6, 4, aux_every=2, alpha=1.0, beta=1.0)
    folder = fit(lm, tiny_text(), config(accumulate=2), tmp_path / "run").folder
    entries = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    logged = [entry for entry in entries if "loss" in entry]
    assert logged
    for entry in logged:
        assert list(entry["parts"]) == ["main", "aux", "activation", "temporal"]
        assert sum(entry["parts"].values()) == pytest.approx(entry["loss"], rel=1e-5)
        assert min(entry["parts"].values()) > 0


def test_a_loss_of_one_part_has_none_logged(tmp_path):
    folder = fit(classifier(), (X, LABELS), config(), tmp_path / "run").folder
    assert "parts" not in (folder / "metrics.jsonl").read_text()


class NoLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, inputs, targets):
        return self.weight


@pytest.mark.parametrize(
    ("model", "data", "options", "message"),
    [
        (NoLoss, (X, LABELS), {}, "model NoLoss must return an object with a scalar tensor `loss`, got Parameter"),
        (NoLoss, (RAGGED, LABELS), {}, r"model NoLoss must be callable as model\(inputs, targets, lengths=lengths\)"),
        (lambda: Own(5), (X, LABELS), {}, r"model Own must give predictions of shape \(2, 2\), got \(2, 5\)"),
        (Own, tiny_text(), {}, "model must be a LanguageModel to learn the text tiny, got Own"),
        (Own, tiny_sequences("tokens"), {}, "model must be a LanguageModel for the tokens of tiny, got Own"),
        (dict, (X, LABELS), {}, "model must be an nn.Module, got dict"),
        (
            classifier,
            (X, X[:, 0, 0]),
            {},
            "model must be a SequenceRegressor for the regression of arrays, got Trellis",
        ),
        (lambda: TrellisRegressor(2, 4, 2, each_step=True), (X, X[:, 0, 0]), {}, "must have each_step = False"),
        (classifier, "seq-mnits", {}, "seq-mnits"),
        (classifier, 3, {}, "data must be the name of a dataset, .* got int"),
        (classifier, {"steps": 3}, {}, "data must be the name of a dataset"),
        (classifier, "adding", {"valid": 0.1}, r"valid belongs to arrays \(x, y\); a dataset has its own splits"),
    ],
)
def test_mistakes_are_named_before_anything_is_written(model, data, options, message, tmp_path):
    with pytest.raises((TypeError, ValueError), match=message):
        fit(model(), data, config(), tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("model", [Own, lambda: SequenceClassifier(GruBody(2, hidden_size=4), 2)])
def test_depths_need_a_body_that_has_them(model, tmp_path):
    with pytest.raises(
        ValueError, match=r"training\.depths needs a body with a depth of each call.* (Own|model.body=gru)"
    ):
        fit(model(), (X, LABELS), config(depths=[(0.5, 2)]), tmp_path / "run")
    assert not (tmp_path / "run").exists()


PROGRAM = """
import sys
import numpy as np, torch
from trellisnet import TrainingConfig, TrellisClassifier, fit
x = np.random.default_rng(0).standard_normal((64, 9, 2)).astype(np.float32)
torch.manual_seed(3)
model = TrellisClassifier(2, 8, 4, 2, aux_every=2)
options = TrainingConfig(epochs=2, batch_size=8, log_every=1, device="cpu")
result = fit(model, (x, (x[:, 0, 0] > 0).astype(int)), options, sys.argv[1])
assert result.metrics["valid"]["accuracy"] >= 0
"""


@pytest.mark.skipif(not distributed.is_available(), reason="this torch has no distributed package")
def test_two_processes_learn_as_one(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    runs = {}
    for processes in (1, 2):
        start = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"] if processes == 2 else []
        command = [sys.executable, *start, str(tmp_path / "program.py"), str(tmp_path / str(processes))]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        lines = (tmp_path / str(processes) / "metrics.jsonl").read_text().splitlines()
        runs[processes] = [json.loads(line) for line in lines]
    for one, two in zip(runs[1], runs[2], strict=True):
        assert one.get("loss") == pytest.approx(two.get("loss"), abs=1e-5)
        assert one.get("parts") == (pytest.approx(two["parts"], abs=1e-5) if "parts" in two else None)
