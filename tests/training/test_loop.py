import json

import pytest
import torch

from reference import assert_close
from tiny import tiny_config, tiny_sequences, tiny_text
from trellisnet import TrellisLM
from trellisnet.training import fit, tasks
from trellisnet.training.loop import Trainer
from trellisnet.training.non_finite import NotANumberError
from trellisnet.training.optimisation import Average
from trellisnet.training.progress import Progress
from trellisnet.training.saving import load_weights


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    torch.set_default_dtype(torch.float32)
    monkeypatch.setattr(Progress, "say", lambda self, text: self.log(text))


def run(data, config, folder, monkeypatch):
    monkeypatch.setattr(tasks, "load", lambda name, **options: data)
    return fit.train_new(config, "run", folder)


@pytest.mark.parametrize("task", ["classification", "labels", "regression", "tokens"])
def test_every_task_learns(task, tmp_path, monkeypatch):
    model = {"hidden_size": 16, "embedding_size": 5 if task == "tokens" else None}
    config = tiny_config(model, text=False, epochs=30, learning_rate=0.02, batch_size=8)
    done = run(tiny_sequences(task), config, tmp_path / "run", monkeypatch)
    values = [entry["valid"] for entry in done.metrics() if "valid" in entry]
    if task in ("regression", "labels"):
        metric = "mse" if task == "regression" else "nll"
        assert values[-1][metric] < 0.2 * values[0][metric]
    else:
        assert values[-1]["accuracy"] > 0.8
    result = json.loads((done.folder / "result.json").read_text())
    assert set(result["metrics"]) == {"valid", "test"}
    assert result["parameters"] > 0


def test_a_language_model_learns_and_writes(tmp_path, monkeypatch):
    config = tiny_config({"hidden_size": 16}, epochs=8, learning_rate=0.02)
    done = run(tiny_text(), config, tmp_path / "run", monkeypatch)
    values = [entry["valid"]["bits"] for entry in done.metrics() if "valid" in entry]
    assert values[-1] < 1.2 < values[0]  # each character has two successors: one bit is the least
    (sample,) = json.loads((done.folder / "result.json").read_text())["samples"]
    assert len(sample["text"]) == 5


def test_the_learning_rate_follows_the_length_of_a_random_window(tmp_path, monkeypatch):
    seen, step = [], Trainer._step

    def recorded(self, batch):
        loss = step(self, batch)
        seen.append((batch.inputs.shape[1], self.optimiser.param_groups[0]["lr"]))
        return loss

    monkeypatch.setattr(Trainer, "_step", recorded)
    options = {"history": "discard", "horizon": 3}
    for model, context in (({}, 0), (options, 3)):
        seen.clear()
        config = tiny_config(model, steps=10, random_windows=True)
        done = run(tiny_text(), config, tmp_path / f"{context}", monkeypatch)
        assert len({steps for steps, _ in seen}) > 3
        assert [rate for _, rate in seen] == pytest.approx([0.01 * (steps - context) / 10 for steps, _ in seen])
        assert {entry["learning_rate"] for entry in done.metrics() if "learning_rate" in entry} == {0.01}


def test_the_best_model_is_not_evaluated_twice_on_validation(tmp_path, monkeypatch):
    seen, evaluate = [], tasks.LanguageTask.evaluate

    def recorded(self, split, *args, **kwargs):
        seen.append(split)
        return evaluate(self, split, *args, **kwargs)

    monkeypatch.setattr(tasks.LanguageTask, "evaluate", recorded)
    config = tiny_config(epochs=2)
    done = run(tiny_text(), config, tmp_path / "run", monkeypatch)
    assert seen == ["valid", "valid", "test"]
    best = done.metrics()[-1]["best"]
    again = tasks.make_task(config)
    load_weights(again.model, done.folder / "best")
    assert {split: again.evaluate_alone(split) for split in ("valid", "test")} == best


def test_parts_of_a_batch_add_up_to_it(tmp_path, monkeypatch):
    """Without dropout, accumulation changes nothing but memory."""
    losses = {}
    for parts in (1, 2, 4):
        config = tiny_config(accumulate=parts, log_every=1, clip=0.5)
        done = run(tiny_text(), config, tmp_path / str(parts), monkeypatch)
        losses[parts] = torch.tensor([entry["loss"] for entry in done.metrics() if "loss" in entry])
    assert_close(losses[1], losses[2], 1e-5)
    assert_close(losses[1], losses[4], 1e-5)


def test_depth_grows_by_schedule(tmp_path, monkeypatch):
    depths = []
    loss = tasks.LanguageTask.loss

    def recorded(self, model, batch, carried, depth):
        depths.append(depth)
        return loss(self, model, batch, carried, depth)

    monkeypatch.setattr(tasks.LanguageTask, "loss", recorded)
    run(tiny_text(), tiny_config(epochs=3, depths=[(0.34, 1), (0.67, 2)]), tmp_path / "run", monkeypatch)
    epoch = len(depths) // 3
    assert depths == [1] * epoch + [2] * epoch + [None] * epoch


def test_the_best_model_is_kept(tmp_path, monkeypatch):
    config = tiny_config(epochs=6, learning_rate=0.3, optimiser="sgd", stop_early=2)
    done = run(tiny_text(), config, tmp_path / "run", monkeypatch)
    entries = done.metrics()
    values = [entry["valid"]["bits"] for entry in entries if "valid" in entry]
    assert entries[-1]["best"]["valid"]["bits"] == pytest.approx(min(values), abs=1e-6)


def test_early_stop(tmp_path, monkeypatch):
    values = iter([3.0, 2.0, 2.5, 2.6, 2.7, 2.8, 1.0])
    monkeypatch.setattr(tasks.LanguageTask, "metrics", lambda self, sums: {"bits": next(values, 9.0)})
    done = run(tiny_text(), tiny_config(epochs=10, stop_early=2), tmp_path / "run", monkeypatch)
    assert sum("valid" in entry for entry in done.metrics()) == 4
    assert "stopped early" in (done.folder / "log.txt").read_text()


def break_step(monkeypatch, at):
    loss = tasks.LanguageTask.loss
    calls = []

    def broken(self, *args):
        calls.append(1)
        value, parts, carried = loss(self, *args)
        return (value * torch.nan if len(calls) == at else value), parts, carried

    monkeypatch.setattr(tasks.LanguageTask, "loss", broken)


def test_a_loss_that_is_no_number_stops_the_run(tmp_path, monkeypatch):
    break_step(monkeypatch, 5)
    with pytest.raises(
        NotANumberError, match=r"the loss is not a finite number at step 5 of epoch 1, learning rate 0.01; none"
    ):
        run(tiny_text(), tiny_config(), tmp_path / "run", monkeypatch)


def test_a_gradient_that_is_no_number_never_reaches_the_weights(tmp_path, monkeypatch):
    step = tasks.LanguageTask.loss
    calls = []

    def broken(self, *args):
        calls.append(1)
        value, parts, carried = step(self, *args)
        if len(calls) == 5:
            value.register_hook(lambda gradient: gradient * torch.inf)
        return value, parts, carried

    monkeypatch.setattr(tasks.LanguageTask, "loss", broken)
    done = run(tiny_text(), tiny_config(on_nan="skip", log_every=1), tmp_path / "run", monkeypatch)
    assert "the gradient is not a finite number at step 5" in (done.folder / "log.txt").read_text()
    losses = [entry["loss"] for entry in done.metrics() if "loss" in entry]
    assert len(losses) == done.metrics()[-1]["step"] - 1
    assert min(losses) > 0


def test_steps_without_hope_stop_the_run(tmp_path, monkeypatch):
    loss = tasks.LanguageTask.loss

    def broken(self, *args):
        value, parts, carried = loss(self, *args)
        return value * torch.nan, parts, carried

    monkeypatch.setattr(tasks.LanguageTask, "loss", broken)
    with pytest.raises(NotANumberError):
        run(tiny_text(), tiny_config(on_nan="skip"), tmp_path / "run", monkeypatch)


def test_a_validation_that_is_no_number_is_not_the_best(tmp_path, monkeypatch):
    values = iter([float("nan"), 2.0, 1.9])
    monkeypatch.setattr(tasks.LanguageTask, "metrics", lambda self, sums: {"bits": next(values, 1.9)})
    done = run(tiny_text(), tiny_config(epochs=3), tmp_path / "run", monkeypatch)
    assert (done.folder / "best" / "model.safetensors").exists()


def test_rates_decay_whatever_is_evaluated(tmp_path, monkeypatch):
    config = tiny_config(epochs=4, schedule="steps", decay_after=[1], evaluate_every=2, log_every=1)
    done = run(tiny_text(), config, tmp_path / "run", monkeypatch)
    rates = {entry["epoch"]: entry["learning_rate"] for entry in done.metrics() if "learning_rate" in entry}
    assert rates == pytest.approx({0: 0.01, 1: 0.001, 2: 0.001, 3: 0.001})


def test_a_shallow_phase_is_not_stopped_early(tmp_path, monkeypatch):
    values = iter([1.0, 2.0, 3.0, 4.0, 5.0, 4.0])
    monkeypatch.setattr(tasks.LanguageTask, "metrics", lambda self, sums: {"bits": next(values, 4.0)})
    done = run(tiny_text(), tiny_config(epochs=6, depths=[(0.7, 1)], stop_early=1), tmp_path / "run", monkeypatch)
    assert sum("valid" in entry for entry in done.metrics()) == 6


def test_or_the_step_is_skipped(tmp_path, monkeypatch):
    break_step(monkeypatch, 5)
    done = run(tiny_text(), tiny_config(on_nan="skip"), tmp_path / "run", monkeypatch)
    assert "step skipped" in (done.folder / "log.txt").read_text()
    last = [entry["valid"]["bits"] for entry in done.metrics() if "valid" in entry][-1]
    assert last == last


def test_out_of_memory_says_what_to_try(tmp_path, monkeypatch):
    def full(self, *args):
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(Trainer, "_step", full)
    with pytest.raises(MemoryError, match=r"training.batch_size=4 and training.steps=6: try --model.memory recompute"):
        run(tiny_text(), tiny_config(), tmp_path / "run", monkeypatch)


def test_averaging_starts_when_validation_stalls(tmp_path, monkeypatch):
    """The model is then the mean of the weights after every step since."""
    values = iter([3.0, 2.0, 2.5, 1.0, 1.0])
    monkeypatch.setattr(tasks.LanguageTask, "metrics", lambda self, sums: {"bits": next(values, 9.0)})
    seen = []
    update = Average.update

    def recorded(self):
        seen.append(self.parameters[0].detach().clone())
        update(self)

    monkeypatch.setattr(Average, "update", recorded)
    done = run(tiny_text(), tiny_config(epochs=5, average=True, patience=1), tmp_path / "run", monkeypatch)
    assert "averaging weights from epoch 4 on" in (done.folder / "log.txt").read_text()
    steps = done.metrics()[-1]["step"]
    assert len(seen) == 1 + 2 * steps // 5
    last = TrellisLM.from_pretrained(done.folder / "last")
    assert_close(next(last.parameters()), torch.stack(seen).mean(0), 1e-6)
    assert not torch.equal(seen[0], seen[-1])


def test_windows_are_the_authors_way(tmp_path, monkeypatch):
    values = {}
    for evaluation in ("streaming", "windows"):
        config = tiny_config({"history": "repackage"}, evaluation=evaluation)
        done = run(tiny_text(), config, tmp_path / evaluation, monkeypatch)
        values[evaluation] = json.loads((done.folder / "result.json").read_text())
    assert "windows of 6 in 4 columns, repackaged history" in values["windows"]["protocol"]
    assert values["windows"]["metrics"]["test"]["bits"] != values["streaming"]["metrics"]["test"]["bits"]


def test_mixed_precision_runs(tmp_path, monkeypatch):
    done = run(tiny_text(), tiny_config(precision="bfloat16"), tmp_path / "run", monkeypatch)
    assert (done.folder / "report.html").exists()
