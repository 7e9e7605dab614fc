"""Training at random depths, and evaluation at several depths."""

import json
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from tiny import tiny_config, tiny_sequences, tiny_text
from trellisnet import LanguageModel, TrellisNet
from trellisnet.baselines.rnn import GruBody
from trellisnet.cli import main
from trellisnet.core.forms import counting_iterations
from trellisnet.models.body import run_depths
from trellisnet.training import fit, tasks
from trellisnet.training.checks import check_config
from trellisnet.training.config import TrainingConfig
from trellisnet.training.depths import draw
from trellisnet.training.distribution import Workers
from trellisnet.training.progress import Progress
from trellisnet.training.tasks import make_task
from trellisnet.training.trained import load_task


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    monkeypatch.setattr(Progress, "say", lambda self, text: self.log(text))


def run(data, config, folder, monkeypatch):
    monkeypatch.setattr(tasks, "load", lambda name, **options: data)
    return fit.train_new(config, "run", folder)


def recorded_depths(monkeypatch):
    calls = []
    loss = tasks.LanguageTask.loss

    def recorded(self, model, batch, carried, depth):
        calls.append((depth, carried if batch.continues else None))
        return loss(self, model, batch, carried, depth)

    monkeypatch.setattr(tasks.LanguageTask, "loss", recorded)
    return calls


def test_draws_are_uniform_and_depend_on_the_seed():
    counts = Counter(draw((2, 5), 0, step) for step in range(4000))
    assert set(counts) == {2, 3, 4, 5}
    assert all(900 < count < 1100 for count in counts.values())
    first, second = ([draw((1, 9), seed, step) for step in range(50)] for seed in (0, 1))
    assert first != second
    assert draw((3, 3), 0, 7) == 3


def test_every_step_draws_one_depth_for_all_its_parts(tmp_path, monkeypatch):
    calls = recorded_depths(monkeypatch)
    config = tiny_config(epochs=3, depths=[(0.34, 2), (1, (1, 4))], accumulate=2, seed=5)
    done = run(tiny_text(), config, tmp_path / "run", monkeypatch)
    depths = [depth for depth, _ in calls]
    assert depths[::2] == depths[1::2]
    steps = len(depths) // 2
    fixed = steps // 3
    assert depths[::2] == [2] * fixed + [draw((1, 4), 5, step) for step in range(fixed, steps)]
    assert "epoch 2: depth 1 to 4 at random" in (done.folder / "log.txt").read_text()


def test_the_history_is_carried_from_depth_to_depth(tmp_path, monkeypatch):
    """Upwards and downwards, with contexts of several steps."""
    calls = recorded_depths(monkeypatch)
    config = tiny_config({"kernel_size": 3, "dilation": [1, 2]}, depths=[(1, (1, 5))], log_every=1)
    done = run(tiny_text(), config, tmp_path / "run", monkeypatch)
    changes = []
    for (before, _), (depth, state) in pairwise(calls):
        if state is not None:
            assert len(state.spans) == before + 1  # level 0, and one per layer
            changes.append(depth - before)
    assert min(changes) < 0 < max(changes)
    losses = [entry["loss"] for entry in done.metrics() if "loss" in entry]
    assert sum(losses[-10:]) < sum(losses[:10])


def test_validation_is_at_the_depth_of_the_model(tmp_path, monkeypatch):
    config = tiny_config(epochs=3, depths=[(0.34, 2), (0.67, (1, 4))])
    evaluate, found = tasks.LanguageTask.evaluate, []

    def recorded(self, split, workers, evaluation=None, depths=(None,)):
        found.append(list(depths))
        return evaluate(self, split, workers, evaluation, depths)

    monkeypatch.setattr(tasks.LanguageTask, "evaluate", recorded)
    run(tiny_text(), config, tmp_path / "run", monkeypatch)
    assert found == [[2], [None], [None], [None], [1, 2, 3, 4, 8]]  # the fourth is the test split's


def test_a_run_that_ends_with_a_range_can_stop_early(tmp_path, monkeypatch):
    values = iter([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    monkeypatch.setattr(tasks.LanguageTask, "metrics", lambda self, sums: {"bits": next(values, 4.0)})
    config = tiny_config(epochs=6, depths=[(0.4, 2), (1, (1, 2))], stop_early=1)
    done = run(tiny_text(), config, tmp_path / "run", monkeypatch)
    assert sum("valid" in entry for entry in done.metrics()) == 4  # two at depth 2, whose scores do not count


def test_the_end_of_a_run_evaluates_the_best_model_at_several_depths(tmp_path, monkeypatch):
    data = tiny_text()
    done = run(data, tiny_config(epochs=2, depths=[(1, (2, 3))]), tmp_path / "run", monkeypatch)
    entry = done.metrics()[-1]
    assert list(entry["depths"]) == ["2", "3", "6"]
    assert entry["depths"]["3"]["bits"] == pytest.approx(entry["best"]["valid"]["bits"], abs=1e-6)
    assert "best model at depth 6, valid: loss" in (done.folder / "log.txt").read_text()
    assert "Validation bits over depth" in (done.folder / "report.html").read_text()
    without = run(data, tiny_config(depths=[(0.5, 2)]), tmp_path / "without", monkeypatch)
    assert "depths" not in without.metrics()[-1]
    assert "over depth" not in (without.folder / "report.html").read_text()


MODELS = {
    "language": [
        {"kernel_size": 3, "dilation": [1, 2], "aux_every": 2, "hidden_dropout": 0.5},
        {"groups": [3, 3], "head": "mos", "experts": 2},
        {"history": "repackage", "inject_every": 2},
        {"history": "discard", "horizon": 3},
    ],
    "classification": [{"weight_norm": True, "hidden_dropout": 0.5}, {"groups": [3, 3]}],
    "regression": [{"cell": "gru", "aux_every": 3}],
    "tokens": [{"embedding_size": 5}, {"embedding_size": 5, "history": "discard", "horizon": 2}],
}


def task_of(name, options, ragged=False):
    text = name == "language"
    data = tiny_text() if text else tiny_sequences(name, ragged=ragged)
    if not text:
        for items in data.splits.values() if data.task != "tokens" else ():
            items.inputs = items.inputs.astype(np.float64)
    return make_task(tiny_config(options, text=text), data)


@pytest.mark.parametrize(("name", "options"), [(name, each) for name in MODELS for each in MODELS[name]])
@pytest.mark.parametrize("depths", [[1, 2, 5, 9], [6, 2], [4]])
def test_several_depths_in_one_pass_are_those_of_separate_passes(name, options, depths):
    task = task_of(name, options, ragged=name == "classification")
    own = task.model.net.aux_every
    for way in ("streaming", "windows") if name == "language" else (None,):
        found = task.evaluate_depths("valid", depths, way)
        assert list(found) == depths
        for depth, metrics in found.items():
            (sums,) = task.evaluate("valid", Workers(), way, [depth])
            assert metrics == pytest.approx(task.metrics(sums), abs=1e-10)
    assert task.model.net.aux_every == own
    assert task.model.training


@pytest.mark.parametrize("name", ["language", "classification", "tokens"])
def test_several_depths_take_one_pass(name, monkeypatch):
    task = task_of(name, {"embedding_size": 5} if name == "tokens" else {})
    calls, forward = [], TrellisNet.forward

    def counted(self, *args, depth=None, **kwargs):
        calls.append(depth)
        return forward(self, *args, depth=depth, **kwargs)

    monkeypatch.setattr(TrellisNet, "forward", counted)
    task.evaluate_depths("valid", [4, 1, 8])
    assert set(calls) == {8}
    together = len(calls)
    task.evaluate("valid", Workers(), depths=[8])
    assert len(calls) == 2 * together


class OneDepth(nn.Module):
    """A body whose inner outputs are not those of smaller depths."""

    def __init__(self, net):
        super().__init__()
        self.net, self.input_size, self.output_size = net, net.input_size, net.output_size

    def forward(self, x, state=None, *, depth=None):
        return self.net(x, state, depth=depth)


def test_a_body_without_inner_outputs_takes_one_pass_per_depth():
    net = TrellisNet(4, 6, 3)
    models = [LanguageModel(body, 7, tied=False) for body in (net, OneDepth(net))]
    models[1].load_state_dict({name.replace("net.", "net.net."): v for name, v in models[0].state_dict().items()})
    nested, single = (make_task(tiny_config(), tiny_text(), model).evaluate_depths("valid", [1, 3]) for model in models)
    for depth, metrics in nested.items():
        assert metrics == pytest.approx(single[depth], abs=1e-10)
    with pytest.raises(ValueError, match=r"body OneDepth runs at one depth per call, got depths \[1, 2\]"):
        run_depths(models[1].net, torch.randn(3, 2, 4), depths=[1, 2])


def test_depths_that_cannot_be_evaluated_are_named():
    task = task_of("language", {})
    with pytest.raises(ValueError, match="depths must be an integer >= 1, got 0"):
        task.evaluate_depths("valid", [1, 0])
    other = make_task(tiny_config(), tiny_text(), LanguageModel(GruBody(4, hidden_size=6), 7, tied=False))
    with pytest.raises(ValueError, match=r"depths needs a body with a depth of each call: got \[1, 2\] and GruBody"):
        other.evaluate_depths("valid", [1, 2])


@pytest.mark.parametrize("depth", [(1, 2, 3), (2,)])
def test_a_range_has_two_ends(depth):
    with pytest.raises(ValueError, match=r"a range of training\.depths must be \[lowest, highest\], got"):
        check_config(tiny_config(depths=[(1, depth)]))


def test_lists_and_tuples_are_one():
    assert TrainingConfig(depths=[[0.5, 2], [1, [1, 4]]]) == TrainingConfig(depths=[(0.5, 2), (1, (1, 4))])


def test_the_command_line_evaluates_at_several_depths(tmp_path, monkeypatch, capsys):
    torch.set_default_dtype(torch.float32)
    done = run(tiny_text(), tiny_config(depths=[(1, (1, 4))]), tmp_path / "run", monkeypatch)
    result = json.loads((done.folder / "result.json").read_text())
    assert main(["evaluate", str(done.folder), "--depths", "1, 3,8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in lines[:3]] == ["test, depth 1", "test, depth 3", "test, depth 8"]
    assert f"bits {result['metrics']['test']['bits']:.4f}" in lines[1]  # three layers are its own depth
    assert lines[3] == "(exact streaming: every token once, with its full receptive field)"


@pytest.mark.parametrize("path", ["layers", "steps"])
@pytest.mark.parametrize("text", [True, False])
def test_a_run_tells_how_many_iterations_its_calls_needed(tmp_path, monkeypatch, capsys, text, path):
    torch.set_default_dtype(torch.float32)
    model = {"tolerance": 1e-3, "path": path, "num_layers": 40, "hidden_size": 8}
    done = run(tiny_text() if text else tiny_sequences(), tiny_config(model, text=text), tmp_path / "run", monkeypatch)
    found = [entry["valid"] for entry in done.metrics() if "valid" in entry]
    assert len(found) == 2
    for metrics in found:
        assert 1 < metrics["iterations"] <= metrics["most_iterations"] <= 40
    result = json.loads((done.folder / "result.json").read_text())["metrics"]["test"]
    with counting_iterations() as counts:
        load_task(done.folder).evaluate("test", Workers())
    assert result["iterations"] == pytest.approx(sum(counts) / len(counts), rel=1e-12)
    assert result["most_iterations"] == max(counts)
    capsys.readouterr()
    assert main(["evaluate", str(done.folder)]) == 0
    said = f"iterations {result['iterations']:.4f}, most_iterations {max(counts):.4f}"
    assert said in capsys.readouterr().out
    assert main(["evaluate", str(done.folder), "--depths", "3"]) == 0
    assert "iterations" not in capsys.readouterr().out
    assert "Iterations per call" in (done.folder / "report.html").read_text()
