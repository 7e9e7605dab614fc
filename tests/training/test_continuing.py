import json

import pytest
import torch
import yaml
from safetensors.torch import load_file
from test_resume import DROPOUTS, Killed, assert_equal_runs

from tiny import tiny_config, tiny_sequences, tiny_text
from trellisnet.cli import main
from trellisnet.data.text.data import TextData
from trellisnet.models.language import LanguageModel
from trellisnet.training import fit, tasks
from trellisnet.training.loop import Trainer
from trellisnet.training.progress import Progress
from trellisnet.vocabulary import Vocabulary


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    torch.set_default_dtype(torch.float32)
    monkeypatch.setattr(Progress, "say", lambda self, text: self.log(text))
    monkeypatch.setattr(tasks, "load", lambda name, **options: tiny_text())


def weights(run, which="best"):
    return load_file(run / which / "model.safetensors")


def error_of(capsys, *arguments):
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


@pytest.mark.parametrize("finished", [True, False])
def test_an_extended_run_equals_a_longer_one(finished, tmp_path, monkeypatch):
    fit.train_new(tiny_config(DROPOUTS, epochs=3), "long", tmp_path / "long")
    step = Trainer._step

    def step_or_die(self, *arguments):
        if self.step == 25 and not finished:
            raise Killed
        return step(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", step_or_die)
        try:
            fit.train_new(tiny_config(DROPOUTS, epochs=2), "short", tmp_path / "short")
        except Killed:
            assert not finished
    assert main(["train", "--resume", str(tmp_path / "short"), "--training.epochs", "3"]) == 0
    assert_equal_runs(tmp_path / "long", tmp_path / "short")
    assert "this run was extended from 2 to 3 epochs" in (tmp_path / "short" / "log.txt").read_text()
    assert "This run was extended from 2 to 3 epochs." in (tmp_path / "short" / "report.html").read_text()
    assert yaml.safe_load((tmp_path / "short" / "config.yaml").read_text())["training"]["epochs"] == 3
    assert main(["evaluate", str(tmp_path / "short")]) == 0


def test_an_extension_that_was_killed_goes_on(tmp_path, monkeypatch):
    fit.train_new(tiny_config(DROPOUTS, epochs=3), "long", tmp_path / "long")
    fit.train_new(tiny_config(DROPOUTS, epochs=1), "short", tmp_path / "short")

    def die(self, *arguments):
        raise Killed

    for epochs in (2, 3):
        with monkeypatch.context() as patch:
            patch.setattr(Trainer, "_step", die)
            with pytest.raises(Killed):
                fit.resume(tmp_path / "short", epochs)
        assert not (tmp_path / "short" / "result.json").exists()
    fit.resume(tmp_path / "short")
    assert_equal_runs(tmp_path / "long", tmp_path / "short")


def test_a_finished_run_says_so(tmp_path, monkeypatch, capsys):
    fit.train_new(tiny_config(), "run", tmp_path / "run")
    monkeypatch.setattr(Trainer, "fit", lambda self: pytest.fail("trained again"))
    capsys.readouterr()
    assert main(["train", "--resume", str(tmp_path / "run")]) == 0
    expected = f"{tmp_path / 'run'} is finished; --training.epochs N with N > 2 extends it\n"
    assert capsys.readouterr().err == expected


def test_only_more_epochs_extend_a_run(tmp_path, capsys):
    run = tmp_path / "run"
    fit.train_new(tiny_config(), "run", run)
    extend = ["train", "--resume", run, "--training.epochs"]
    assert "training.epochs must be above 2, got 2" in error_of(capsys, *extend, 2)
    assert "--training.epochs must be an integer, got 'many'" in error_of(capsys, *extend, "many")
    assert "--training.clip cannot be changed, only" in error_of(capsys, *extend, 5, "--training.clip", 1)
    assert (run / "result.json").exists()
    fit.train_new(tiny_config(minutes=0.01), "timed", tmp_path / "timed")
    error = error_of(capsys, "train", "--resume", tmp_path / "timed", "--training.epochs", 5)
    assert "has the budget training.minutes" in error


def test_a_run_starts_from_the_weights_of_another(tmp_path, monkeypatch):
    fit.train_new(tiny_config(), "first", tmp_path / "first")
    deeper = tiny_config({"num_layers": 5, "hidden_dropout": 0.1}, learning_rate=0.0, epochs=1)
    with monkeypatch.context() as patch:  # other text with the same vocabulary
        patch.setattr(tasks, "load", lambda name, **options: tiny_text(tokens=300))
        fit.train_new(deeper, "second", tmp_path / "second", tmp_path / "first")
    for name, tensor in weights(tmp_path / "first").items():
        assert torch.equal(tensor, weights(tmp_path / "second", "last")[name]), name
    log, report = ((tmp_path / "second" / name).read_text() for name in ("log.txt", "report.html"))
    assert f"started from the weights of {tmp_path / 'first'}" in log
    assert f"started from the weights of {tmp_path / 'first'}" in report


def test_a_start_that_was_killed_is_repeated(tmp_path, monkeypatch, capsys):
    fit.train_new(tiny_config(), "first", tmp_path / "first")
    config = tiny_config(DROPOUTS, learning_rate=0.02)
    fit.train_new(config, "whole", tmp_path / "whole", tmp_path / "first")

    def die(self, *arguments):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", die)
        with pytest.raises(Killed):
            fit.train_new(config, "killed", tmp_path / "killed", tmp_path / "first")
    best = tmp_path / "first" / "best" / "model.safetensors"
    content = best.read_bytes()
    best.write_bytes((tmp_path / "whole" / "best" / "model.safetensors").read_bytes())
    assert "has changed since the run was started from it" in error_of(capsys, "train", "--resume", tmp_path / "killed")
    best.write_bytes(content)
    fit.resume(tmp_path / "killed")
    assert_equal_runs(tmp_path / "whole", tmp_path / "killed")


def test_weights_that_do_not_fit_are_named(tmp_path, monkeypatch):
    fit.train_new(tiny_config(), "first", tmp_path / "first")
    with pytest.raises(ValueError, match=r"--from .*first: .*net.kernel.* has shape .*, expected"):
        fit.train_new(tiny_config({"hidden_size": 8}), "wide", tmp_path / "wide", tmp_path / "first")
    other = TextData("other", Vocabulary(list("ABCDEFG"), "characters"), tiny_text().splits)
    with monkeypatch.context() as patch:
        patch.setattr(tasks, "load", lambda name, **options: other)
        with pytest.raises(ValueError, match=r"--from .*first: its vocabulary is not that of other"):
            fit.train_new(tiny_config(), "other", tmp_path / "other", tmp_path / "first")
    monkeypatch.setattr(tasks, "load", lambda name, **options: tiny_sequences())
    with pytest.raises(ValueError, match=r"--from .*first: .*embedding.* is not part of the model"):
        fit.train_new(tiny_config(text=False), "labels", tmp_path / "labels", tmp_path / "first")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first"]


def test_the_command_takes_a_run_to_start_from(tmp_path, capsys):
    config = tiny_config()
    fit.train_new(config, "first", tmp_path / "first")
    recipe = tmp_path / "first" / "config.yaml"
    assert main(["train", str(recipe), "--from", str(tmp_path / "first"), "--to", str(tmp_path / "second")]) == 0
    facts = json.loads((tmp_path / "second" / "task.json").read_text())
    assert facts["from"]["run"] == str(tmp_path / "first")
    assert "nowhere is not a run" in error_of(capsys, "train", recipe, "--from", "nowhere", "--to", tmp_path / "third")
    assert not (tmp_path / "third").exists()


def test_a_trellis_with_attention_starts_equal_to_one_without(tmp_path):
    fit.train_new(tiny_config(), "first", tmp_path / "first")
    config = tiny_config({"body": "attention-trellis", "window": 4}, learning_rate=0.0, epochs=1)
    fit.train_new(config, "second", tmp_path / "second", tmp_path / "first")
    plain, grown = (LanguageModel.from_pretrained(tmp_path / name / "best") for name in ("first", "second"))
    assert not grown.net.attention.gamma.any()
    ids = torch.arange(12)[None] % 7
    assert torch.allclose(grown.log_prob(ids), plain.log_prob(ids), atol=1e-5)
    with pytest.raises(ValueError, match=r"--from .*second: .*net.attention.gamma is not part of the model"):
        fit.train_new(tiny_config(), "third", tmp_path / "third", tmp_path / "second")
