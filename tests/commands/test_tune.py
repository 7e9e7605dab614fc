"""`trellisnet tune`: a study that is killed loses no finished trial."""

import json
import re
import sys
from pathlib import Path

import pytest
import torch
import yaml

from trellisnet.cli import main
from trellisnet.training.metrics import MSE
from trellisnet.training.progress import Progress
from trellisnet.training.reading import read_config
from trellisnet.training.recipes import load_recipe, recipe_space
from trellisnet.training.space import Choice, Range, read_space
from trellisnet.training.tuning import Study

pytest.importorskip("optuna", reason="the extra 'tune' is not installed")

RECIPE = """
data: {name: adding, options: {steps: 6, train_items: 32, test_items: 8}}
model: {hidden_size: 4, num_layers: 2}
training: {epochs: 2, batch_size: 8, evaluation_batch: 8, log_every: 2}
tune:
  training.learning_rate: {low: 1e-4, high: 1e-1, log: true}
  model.num_layers: {low: 1, high: 3}
  model.dilation: [[1], [1, 2]]
"""


class Killed(BaseException):
    pass


@pytest.fixture(autouse=True)
def _place(tmp_path, monkeypatch):
    torch.set_default_dtype(torch.float32)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Progress, "say", lambda self, text: self.log(text))
    monkeypatch.setattr("trellisnet.training.reporting.report.has_matplotlib", lambda: False)
    monkeypatch.setattr("trellisnet.training.reporting.tuning.has_matplotlib", lambda: False)
    (tmp_path / "my.yaml").write_text(RECIPE)


def results(folder="runs/tune-my"):
    with open(f"{folder}/results.json", encoding="utf-8") as file:
        return json.load(file)


def test_a_killed_study_loses_no_finished_trial(monkeypatch, capsys):
    """It dies in the middle of the second trial, between two checkpoints."""
    steps, advance = [], Progress.advance

    def advance_or_die(self, at, *args):
        advance(self, at, *args)
        steps.append(at)
        if len(steps) == 8 + 6:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "advance", advance_or_die)
        with pytest.raises(Killed):
            main(["tune", "my.yaml", "--trials", "3", "--pruner", "none"])
    before = results()["trials"]
    assert [trial["state"] for trial in before] == ["complete", "running"]
    trained = []
    monkeypatch.setattr(Progress, "advance", lambda self, at, *args: trained.append(at))
    assert main(["tune", "my.yaml", "--trials", "3", "--pruner", "none"]) == 0
    after = results()["trials"]
    assert after[0] == before[0]
    assert after[1]["params"] == before[1]["params"]
    assert [trial["state"] for trial in after] == ["complete"] * 3
    assert trained == [5, 6, 7, 8, *range(1, 9)]  # the second goes on from the end of its first epoch
    out = capsys.readouterr().out
    best = min(after, key=lambda trial: trial["value"])
    assert re.search(rf"^trial .*\n *{best['number']}  complete", out)  # the best comes first
    assert set(results()["importances"]) <= set(yaml.safe_load(RECIPE)["tune"])

    values = load_recipe("runs/tune-my/best.yaml")
    config = read_config(values, "best")
    assert config.training.learning_rate == best["params"]["training.learning_rate"]
    assert config.model.num_layers == best["params"]["model.num_layers"]
    assert config.training.test
    assert "3 trials" in Path("runs/tune-my/report.html").read_text()
    assert main(["tune", "my.yaml", "--trials", "3", "--pruner", "none"]) == 0  # nothing is left to do
    assert results()["trials"] == after


def test_a_process_killed_while_it_chooses_options(tmp_path):
    """The trial has the first of its two options; the next process gives it the other that it would have had."""
    space = read_space({"model.hidden_size": {"low": 2, "high": 99}, "training.learning_rate": [0.1, 0.2]}, "space")
    halves = dict(list(space.items())[:1])
    killed, whole = (Study(tmp_path / name, space, {}, MSE, "none", 2, 0) for name in ("killed", "whole"))
    killed.space = halves
    trial, lock = killed._claim(1)
    lock.release()
    assert set(trial.params) == set(halves)
    killed.space = space
    (again, again_lock), (expected, expected_lock) = killed._claim(1), whole._claim(1)
    again_lock.release()
    expected_lock.release()
    assert again.number == trial.number == 0
    assert again.params == expected.params
    assert len(again.params) == 2


def test_two_workers_share_a_study_and_worse_trials_are_pruned(monkeypatch, tmp_path):
    """The workers take turns in one process; a trial that one works on is not taken by the other."""
    space = read_space({"model.hidden_size": {"low": 2, "high": 9}}, "space")
    one, other = (Study(tmp_path / "study", space, {"recipe": "x"}, MSE, "median", 2, 0) for _ in range(2))
    trial, lock = one._claim(2)
    second, second_lock = other._claim(2)
    assert second.number == trial.number + 1
    assert other._claim(2) is None  # enough
    lock.release()
    orphan, orphan_lock = other._claim(2)
    assert (orphan.number, orphan.params) == (trial.number, trial.params)
    second_lock.release()
    orphan_lock.release()
    with pytest.raises(ValueError, match="was started with recipe = 'x', got 'y': choose another folder"):
        Study(tmp_path / "study", space, {"recipe": "y"}, MSE, "median", 2, 0)


def test_pruning_and_failures(monkeypatch, capsys):
    monkeypatch.setattr("optuna.trial.Trial.should_prune", lambda self: self.number % 2 == 1)
    assert main(["tune", "my.yaml", "--trials", "2", "--folder", "pruned", "--pruner", "hyperband"]) == 0
    trials = results("pruned")["trials"]
    assert [trial["state"] for trial in trials] == ["complete", "pruned"]
    assert len(trials[1]["evaluations"]) == 1
    monkeypatch.setattr("trellisnet.training.tuning.train_in", lambda *args: (_ for _ in ()).throw(ValueError("odd")))
    assert main(["tune", "my.yaml", "--trials", "9", "--folder", "failed"]) == 2
    assert "5 trials in a row failed, the last because odd" in capsys.readouterr().err
    assert {trial["failed"] for trial in results("failed")["trials"]} == {"odd"}


def test_a_time_budget_pauses_a_trial(monkeypatch):
    monkeypatch.setattr("trellisnet.training.tuning.time.monotonic", iter(range(0, 10_000, 25)).__next__)
    assert main(["tune", "my.yaml", "--minutes", "1"]) == 0
    assert [trial["state"] for trial in results()["trials"]] == ["running"]


@pytest.mark.parametrize(
    ("text", "flags", "message"),
    [
        ("", ["--space", "none.yaml"], "--space none.yaml not found"),
        ("", ["--trials", "0"], "--trials must be an integer >= 1, got 0"),
        ("", ["--minutes", "0"], "--minutes must be a number > 0"),
        ("", ["--pruner", "axe"], "axe"),
        (
            "",
            ["--training.learning_rate", "0.1"],
            "training.learning_rate is varied, and --training.learning_rate sets it",
        ),
        ("training.learnin_rate: [1, 2]", [], "did you mean 'training.learning_rate'"),
        ("training.learning_rate: [1]", [], "must be a list of at least two values or a range {low, high}, got [1]"),
        ("training.learning_rate: {low: 2, high: 1}", [], "must have low < high, got low=2 and high=1"),
        ("training.learning_rate: {low: 1, hihg: 3}", [], "unknown key 'hihg', did you mean 'high'"),
        ("training.learning_rate: {low: 0, high: 1, log: true}", [], "true needs low > 0"),
        ("model.num_layers: {low: 1, high: 2.5}", [], "model.num_layers must be an integer, got 2.5"),
        ("model.cell: [lstm, lsmt]", [], "lsmt"),
    ],
)
def test_mistakes_take_one_line(text, flags, message, tmp_path, capsys):
    if text:
        (tmp_path / "space.yaml").write_text(text)
        flags = [*flags, "--space", "space.yaml"]
    assert main(["tune", "my.yaml", *flags]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error
    assert not (tmp_path / "runs").exists()


def test_a_recipe_without_a_space_and_a_missing_extra(monkeypatch, capsys):
    assert main(["tune", "adding"]) == 2
    assert (
        "recipe adding has no section 'tune' with a search space: add one, or give --space FILE"
        in capsys.readouterr().err
    )
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert main(["tune", "my.yaml"]) == 2
    assert "tune needs the optuna package, of the extra 'tune'" in capsys.readouterr().err


def test_spaces_and_inheritance(tmp_path):
    space = read_space({"a": {"low": 1, "high": 2}, "b": ["x", [1, 2]]}, "here")
    assert space == {"a": Range(1, 2), "b": Choice(("x", "[1, 2]"))}
    (tmp_path / "child.yaml").write_text("extends: my.yaml\ntune: {model.hidden_size: [4, 8]}\n")
    assert recipe_space("child.yaml") == {"model.hidden_size": [4, 8]}
    assert "tune" not in load_recipe("child.yaml")
