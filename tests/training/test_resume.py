import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tiny import tiny_config, tiny_sequences, tiny_text
from trellisnet.cli import main
from trellisnet.training import fit, tasks
from trellisnet.training.checkpoints import DamagedError, saved_steps
from trellisnet.training.loop import Trainer
from trellisnet.training.progress import Progress
from trellisnet.training.signals import Interrupted

DROPOUTS = {"hidden_dropout": 0.3, "weight_dropout": 0.3, "output_dropout": 0.2}
EXPERIMENTS = {
    "text, carried": (tiny_text, {**DROPOUTS}, {}),
    "text, repackaged, averaged": (
        tiny_text,
        {**DROPOUTS, "history": "repackage", "weight_norm": True, "aux_every": 2, "alpha": 1.0, "beta": 1.0},
        {"optimiser": "sgd", "momentum": 0.5, "schedule": "plateau", "patience": 1, "average": True, "epochs": 4},
    ),
    "text, discarded, accumulated": (
        tiny_text,
        {**DROPOUTS, "history": "discard", "horizon": 3, "head": "mos", "experts": 2},
        {"accumulate": 2, "clip": 0.1, "schedule": "cosine", "warmup": 0.2, "optimiser": "adamw"},
    ),
    "text, carried, random depths, accumulated": (
        tiny_text,
        {**DROPOUTS, "aux_every": 2, "dilation": [1, 2]},
        {"depths": [(1, (1, 4))], "accumulate": 2, "epochs": 3},
    ),
    "text, repackaged, random depths after a fixed one": (
        tiny_text,
        {**DROPOUTS, "history": "repackage", "kernel_size": 3},
        {"depths": [(0.4, 2), (1, (2, 5))], "epochs": 3},
    ),
    "text, carried, random windows, a narrow last layer": (
        tiny_text,
        {"body": "lstm", "last_size": 4, "dropout": 0.2, "variational": True, "weight_dropout": 0.3},
        {"steps": 10, "random_windows": True, "schedule": "cosine", "warmup": 0.2, "epochs": 4, "optimiser": "sgd"},
    ),
    "ragged sequences": (
        lambda: tiny_sequences(ragged=True),
        {**DROPOUTS, "input_dropout": 0.1},
        {"schedule": "steps", "decay_after": [1], "depths": [(0.5, 2)], "weight_decay": 0.1, "text": False},
    ),
}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    torch.set_default_dtype(torch.float32)
    monkeypatch.setattr(Progress, "say", lambda self, text: self.log(text))


@pytest.fixture(params=EXPERIMENTS)
def experiment(request, monkeypatch):
    data, model, training = EXPERIMENTS[request.param]
    monkeypatch.setattr(tasks, "load", lambda name, **options: data())
    return tiny_config(model, **training)


class Killed(BaseException):
    pass


def weights(folder):
    return {name: load_file(folder / name / "model.safetensors") for name in ("best", "last")}


def assert_equal_runs(a, b):
    assert (a / "metrics.jsonl").read_text() == (b / "metrics.jsonl").read_text()
    for name, tensors in weights(a).items():
        for key, tensor in tensors.items():
            assert torch.equal(tensor, weights(b)[name][key]), (name, key)


@pytest.mark.parametrize("save_minutes", [0.0, 10.0])
def test_a_run_that_was_killed_ends_as_if_it_had_not_been(experiment, tmp_path, monkeypatch, save_minutes):
    experiment.training.save_minutes = save_minutes
    fit.train_new(experiment, "whole", tmp_path / "whole")
    steps = [5, 23, 24, 31]

    def killed_at(step):
        advance = Progress.advance

        def advance_or_die(self, at, *args):
            advance(self, at, *args)
            if at == step:
                raise Killed

        return advance_or_die

    for turn, step in enumerate(steps):
        with monkeypatch.context() as patch:
            patch.setattr(Progress, "advance", killed_at(step))
            try:
                if turn == 0:
                    fit.train_new(experiment, "killed", tmp_path / "killed")
                else:
                    fit.resume(tmp_path / "killed")
            except Killed:
                pass
    fit.resume(tmp_path / "killed")
    assert_equal_runs(tmp_path / "whole", tmp_path / "killed")


def test_a_signal_saves_and_stops(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "load", lambda name, **options: tiny_text())
    config = tiny_config(DROPOUTS)
    fit.train_new(config, "whole", tmp_path / "whole")
    step = Trainer._step

    def step_and_signal(self, *args):
        if self.step == 7:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", step_and_signal)
        with pytest.raises(Interrupted):
            fit.train_new(config, "stopped", tmp_path / "stopped")
    assert saved_steps(tmp_path / "stopped" / "checkpoints") == [8]
    assert "train --resume" in (tmp_path / "stopped" / "log.txt").read_text()
    fit.resume(tmp_path / "stopped")
    assert_equal_runs(tmp_path / "whole", tmp_path / "stopped")


def test_a_damaged_checkpoint_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "load", lambda name, **options: tiny_text())
    config = tiny_config(DROPOUTS)
    fit.train_new(config, "whole", tmp_path / "whole")
    fit.train_new(config, "damaged", tmp_path / "damaged")
    last, before = (
        (tmp_path / "damaged" / "checkpoints").glob("*.safetensors"),
        saved_steps(tmp_path / "damaged" / "checkpoints"),
    )
    assert len(list(last)) == 2
    (tmp_path / "damaged" / "result.json").unlink()  # as if it had been killed at the end
    path = tmp_path / "damaged" / "checkpoints" / f"step-{before[-1]}.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    fit.resume(tmp_path / "damaged")
    assert "is damaged" in (tmp_path / "damaged" / "log.txt").read_text()
    assert_equal_runs(tmp_path / "whole", tmp_path / "damaged")
    for path in (tmp_path / "damaged" / "checkpoints").glob("*.json"):
        path.write_text("{")
    (tmp_path / "damaged" / "result.json").unlink()
    with pytest.raises(DamagedError, match=r"all checkpoints in .* are damaged"):
        fit.resume(tmp_path / "damaged")


def test_what_has_changed_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "load", lambda name, **options: tiny_text())
    fit.train_new(tiny_config(), "run", tmp_path / "run")
    text = (tmp_path / "run" / "config.yaml").read_text()
    (tmp_path / "run" / "config.yaml").write_text(text.replace("learning_rate: 0.01", "learning_rate: 0.5"))
    with pytest.raises(
        ValueError, match=r"config\.yaml has changed: the run was started with training.learning_rate = 0.01, got 0.5"
    ):
        fit.resume(tmp_path / "run")
    (tmp_path / "run" / "config.yaml").write_text(text)
    fit.resume(tmp_path / "run")
    monkeypatch.setattr(tasks, "load", lambda name, **options: tiny_text(words=6))
    (tmp_path / "run" / "result.json").unlink()  # as if it had been killed at the end
    with pytest.raises(ValueError, match="the data has changed since the last checkpoint"):
        fit.resume(tmp_path / "run")


KILLS = int(os.environ.get("TRELLISNET_KILLS", "2"))


def test_kill_minus_nine_at_random_moments(tmp_path):
    """Real processes; `TRELLISNET_KILLS=20` for more of them."""
    text = tmp_path / "text.txt"
    text.write_text("".join(f"line {i * i % 97} of {i % 13}\n" for i in range(700)))
    flags = ["--data.options.path", str(text), "--model.hidden_size", "16", "--model.num_layers", "3"]
    flags += ["--model.embedding_size", "8", "--training.epochs", "3", "--training.save_minutes", "0.0005"]
    flags += ["--training.steps", "20", "--training.sample", "0", "--training.batch_size", "8"]
    trellisnet = [sys.executable, "-m", "trellisnet", "train"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert main(["train", "my-text", *flags, "--to", str(whole)]) == 0
    generator = torch.Generator().manual_seed(KILLS)
    hits = 0
    for _ in range(KILLS):
        command = ["--resume", str(killed)] if (killed / "config.yaml").exists() else ["my-text", *flags]
        if "my-text" in command:
            command += ["--to", str(killed)]
        process = subprocess.Popen([*trellisnet, *command], env=environment, stderr=subprocess.DEVNULL)
        before = saved_steps(killed / "checkpoints")
        while process.poll() is None and saved_steps(killed / "checkpoints") == before:
            time.sleep(0.005)  # it starts
        time.sleep(0.2 * torch.rand((), generator=generator).item())
        hits += process.poll() is None  # it learns, or writes a checkpoint
        process.kill()
        process.wait()
    assert hits
    assert main(["train", "--resume", str(killed)]) == 0
    assert_equal_runs(whole, killed)
    assert Path(killed / "report.html").exists()
