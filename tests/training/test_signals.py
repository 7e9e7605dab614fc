import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from test_resume import DROPOUTS, assert_equal_runs

from tiny import tiny_config, tiny_text
from trellisnet.cli import main
from trellisnet.training import fit, tasks
from trellisnet.training.progress import Progress
from trellisnet.training.reporting import report
from trellisnet.training.signals import Interrupted, Signals
from trellisnet.training.tasks.language import LanguageTask


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    torch.set_default_dtype(torch.float32)
    monkeypatch.setattr(Progress, "say", lambda self, text: self.log(text))
    monkeypatch.setattr(tasks, "load", lambda name, **options: tiny_text())


def after(calls, function):
    """A function that sends SIGTERM to this program at its n-th call."""
    count = 0

    def call(*arguments, **options):
        nonlocal count
        count += 1
        if count == calls:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
            pytest.fail("the signal did not interrupt")
        return function(*arguments, **options)

    return call


@pytest.mark.parametrize("evaluation", [1, 2, 3])
def test_an_evaluation_is_interrupted_at_once_and_repeated(evaluation, tmp_path, monkeypatch):
    """The third evaluation is that of the best model, at the end."""
    config = tiny_config(DROPOUTS, average=True, patience=1)
    fit.train_new(config, "whole", tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(LanguageTask, "evaluate", after(evaluation, LanguageTask.evaluate))
        with pytest.raises(Interrupted):
            fit.train_new(config, "stopped", tmp_path / "stopped")
    assert "interrupted and saved; resume with: " in (tmp_path / "stopped" / "log.txt").read_text()
    fit.resume(tmp_path / "stopped")
    assert_equal_runs(tmp_path / "whole", tmp_path / "stopped")


def test_a_report_is_interrupted_and_written_later(tmp_path, monkeypatch):
    config = tiny_config()
    with monkeypatch.context() as patch:
        patch.setattr(report, "write_report", after(1, report.write_report))
        patch.setattr(fit, "resume", lambda folder, epochs: fit.train_new(config, "run", folder))
        assert main(["train", "--resume", str(tmp_path / "run")]) == 130
    assert not (tmp_path / "run" / "report.html").exists()
    fit.resume(tmp_path / "run")
    assert (tmp_path / "run" / "report.html").exists()
    assert json.loads((tmp_path / "run" / "result.json").read_text())["metrics"]


def test_several_processes_complete_their_common_work():
    signals = Signals()
    with signals.caught(), signals.at_once(allowed=False):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
    assert signals.stopping


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_loading_data_ends_with_one_line(number, tmp_path):
    code = """
import time
from trellisnet.training import tasks
from trellisnet.cli import main
def load(name, **options):
    print("loading", flush=True)
    time.sleep(60)
tasks.load = load
raise SystemExit(main(["train", "demo"]))
"""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, **pipes) as program:
        assert program.stdout.readline() == "loading\n"
        program.send_signal(number)
        assert program.wait(timeout=20) == 130
        assert program.stderr.read() == "trellisnet: interrupted\n"
    assert list(tmp_path.iterdir()) == []
