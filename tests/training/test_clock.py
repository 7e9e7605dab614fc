"""Training with a time budget, on a clock that counts one second per step."""

import json
from itertools import count
from types import SimpleNamespace

import pytest
import torch

from tiny import tiny_config, tiny_sequences, tiny_text
from trellisnet.training import clock, fit, tasks
from trellisnet.training.checks import check_config
from trellisnet.training.clock import Clock
from trellisnet.training.config import TrainingConfig
from trellisnet.training.distribution import Workers
from trellisnet.training.loop import Trainer
from trellisnet.training.optimisation import LearningRate
from trellisnet.training.progress import Progress
from trellisnet.training.reporting.summary import summarise


@pytest.fixture(autouse=True)
def _one_second_per_step(monkeypatch):
    torch.set_default_dtype(torch.float32)
    monkeypatch.setattr(Progress, "say", lambda self, text: self.log(text))
    monkeypatch.setattr(tasks, "load", lambda name, **options: tiny_text())
    ticks = count()
    monkeypatch.setattr(
        clock, "time", SimpleNamespace(monotonic=lambda: float(next(ticks)), process_time=lambda: next(ticks) / 4)
    )


def entries(run, kind):
    return [entry for entry in run.metrics() if kind in entry]


def test_training_ends_when_the_time_is_up(tmp_path):
    config = tiny_config(epochs=99, minutes=0.5, schedule="cosine", learning_rate=0.01, log_every=1)
    run = fit.train_new(config, "run", tmp_path / "run")
    rates = [entry["learning_rate"] for entry in entries(run, "loss")]
    assert len(rates) == 30
    assert rates == sorted(rates, reverse=True)
    assert rates[15] == pytest.approx(0.005)
    assert rates[-1] < 1e-4
    valid = entries(run, "valid")
    steps = len(tasks.make_task(config).train_batches(Workers()))
    assert [entry["step"] for entry in valid] == [steps, 30]  # one whole epoch, and the end
    assert [entry["seconds"] for entry in valid] == [steps, 30]
    assert [entry["epoch"] for entry in valid] == [1, round(30 / steps, 3)]
    assert summarise(run).seconds == [steps, 30]
    assert (run.folder / "best").is_dir()
    assert "0.5 minutes" in (run.folder / "log.txt").read_text()


def test_the_epochs_are_the_upper_bound(tmp_path):
    """The schedule then ends with them."""
    runs = [
        fit.train_new(tiny_config(epochs=2, schedule="cosine", log_every=1, **time), "run", tmp_path / name)
        for name, time in {"timed": {"minutes": 60.0}, "plain": {}}.items()
    ]
    rates = [[entry["learning_rate"] for entry in entries(run, "loss")] for run in runs]
    assert rates[0] == rates[1]


def test_evaluations_by_the_clock(tmp_path):
    run = fit.train_new(tiny_config(epochs=99, minutes=0.5, evaluate_minutes=0.1), "run", tmp_path / "run")
    steps = len(tasks.make_task(run.config).train_batches(Workers()))
    assert [entry["step"] for entry in entries(run, "valid")] == sorted({6, 12, 18, 24, 30, steps})


def test_the_time_of_the_cores(tmp_path):
    """Steps that take a quarter of the time of their cores."""
    run = fit.train_new(tiny_config(epochs=99, minutes=0.25, clock="cpu"), "run", tmp_path / "run")
    last = run.metrics()[-1]
    assert (last["step"], last["seconds"]) == (60, 15)


@pytest.mark.parametrize("stop", [3, 8, 20, 29])
def test_the_time_is_summed_over_resumptions(stop, tmp_path, monkeypatch):
    config = tiny_config(epochs=99, minutes=0.5, evaluate_minutes=0.1, schedule="linear", save_minutes=0.0)
    whole = fit.train_new(config, "run", tmp_path / "whole")

    class Killed(BaseException):
        pass

    def step(self, *args, original=Trainer._step):
        if self.step == stop:
            raise Killed
        return original(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", step)
        with pytest.raises(Killed):
            fit.train_new(config, "run", tmp_path / "killed")
    killed = fit.resume(tmp_path / "killed")
    assert killed.metrics() == whole.metrics()  # because this clock is always the same
    assert "minutes of 0.5 minutes" in (killed.folder / "log.txt").read_text()


def test_a_run_killed_in_its_last_evaluation_evaluates_again(tmp_path, monkeypatch):
    config = tiny_config(epochs=99, minutes=0.05, save_minutes=0.0)

    class Killed(BaseException):
        pass

    def killed(*args):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_after_epoch", killed)
        with pytest.raises(Killed):
            fit.train_new(config, "run", tmp_path / "run")
    run = fit.resume(tmp_path / "run")
    assert [entry["step"] for entry in entries(run, "valid")] == [3]


def test_the_schedule_follows_the_larger_share():
    config = TrainingConfig(learning_rate=1.0, schedule="linear", warmup=0.2, minutes=1.0)
    timer = Clock(config, Workers())
    rate = LearningRate(config, 1000, timer)
    assert rate.at(0, 0) < 0.01
    timer.used = 6.0
    assert rate.at(0, 0) == pytest.approx(0.5, abs=0.01)
    assert rate.at(500, 0) == pytest.approx(0.625)
    timer.used = 61.0
    assert rate.at(500, 0) == pytest.approx(0.0)


def test_a_run_may_leave_the_test_split_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "load", lambda name, **options: tiny_sequences())
    run = fit.train_new(tiny_config(text=False, epochs=1, test=False), "run", tmp_path / "run")
    result = json.loads((run.folder / "result.json").read_text())
    assert list(result["metrics"]) == ["valid"]
    assert sum(map(sum, result["confusion"]["counts"])) == 16  # the items of the validation split


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"minutes": 0}, "training.minutes must be a number > 0, got 0"),
        ({"minutes": 1.0, "evaluate_minutes": 0.0}, "training.evaluate_minutes must be a number > 0, got 0"),
        ({"evaluate_minutes": 1.0}, "training.evaluate_minutes belongs to training.minutes: got 1"),
        ({"clock": "cpu"}, "training.clock belongs to training.minutes: got cpu"),
        ({"minutes": 1.0, "depths": [(0.5, 2)]}, "training.depths counts epochs"),
    ],
)
def test_mistakes_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        check_config(tiny_config(**options))
