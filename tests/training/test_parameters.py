"""A budget of parameters in place of a width: recipe, flag, run."""

import pytest
import torch

from tiny import tiny_data
from trellisnet.cli import UsageError, main, parse
from trellisnet.commands.train import train
from trellisnet.models.bodies import BODIES
from trellisnet.training import tasks
from trellisnet.training.runs import Run
from trellisnet.training.tasks import make_task


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    torch.set_default_dtype(torch.float32)
    monkeypatch.setattr(tasks, "load", lambda name, **options: tiny_data(name))


def config_of(*arguments):
    return parse("train", train, arguments)["config"]


@pytest.mark.parametrize("recipe", ["demo", "word-ptb-small", "perm-mnist-small", "copy-memory", "adding"])
@pytest.mark.parametrize("body", BODIES)
def test_a_budget_sets_the_width(recipe, body):
    task = make_task(config_of(recipe, "--model.body", body, "--model.parameters", "0.5e6"))
    assert task.num_parameters == pytest.approx(0.5e6, rel=0.03)
    assert task.config.model.parameters is None
    assert task.config.model.hidden_size == task.model.net.hidden_size


def test_the_recipe_decides_the_other_sizes():
    model = make_task(config_of("word-ptb", "--model.parameters=2e7")).config.model
    assert (model.embedding_size, model.output_size, model.num_layers) == (400, 400, 55)


def test_the_model_is_that_of_the_width():
    torch.manual_seed(1)
    one = make_task(config_of("demo", "--model.parameters", "2e5"))
    torch.manual_seed(1)
    other = make_task(config_of("demo", "--model.hidden_size", str(one.config.model.hidden_size)))
    assert one.config == other.config
    assert all(torch.equal(a, b) for a, b in zip(one.model.parameters(), other.model.parameters(), strict=True))


def test_the_later_of_width_and_budget_counts(tmp_path):
    (tmp_path / "budget.yaml").write_text("extends: demo\nmodel: {parameters: 1e6}\n")
    (tmp_path / "width.yaml").write_text("extends: budget.yaml\nmodel: {hidden_size: 70}\n")
    budget, width = str(tmp_path / "budget.yaml"), str(tmp_path / "width.yaml")
    assert (config_of(budget).model.parameters, config_of(budget).model.hidden_size) == (1e6, None)
    assert (config_of(width).model.parameters, config_of(width).model.hidden_size) == (None, 70)
    assert config_of(budget, "--model.hidden_size", "80").model.hidden_size == 80
    (tmp_path / "both.yaml").write_text("extends: demo\nmodel: {parameters: 1e6, hidden_size: 3}\n")
    with pytest.raises(UsageError, match=r"model\.parameters chooses model\.hidden_size: give one of the two"):
        config_of(str(tmp_path / "both.yaml"))


def test_the_run_has_the_width(tmp_path):
    flags = ["--model.parameters", "6000", "--model.embedding_size", "8", "--training.epochs", "1"]
    assert main(["train", "demo", *flags, "--data.options.characters", "30000", "--to", str(tmp_path / "run")]) == 0
    model = Run.open(tmp_path / "run").config.model
    assert model.parameters is None
    assert Run.open(tmp_path / "run").read_json("result.json")["parameters"] == pytest.approx(6000, rel=0.03)
    repeated = config_of(str(tmp_path / "run" / "config.yaml"), "--model.parameters", "7000").model
    assert (repeated.parameters, repeated.hidden_size) == (7000, None)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--model.parameters", "1000"], "model.parameters = 1,000 cannot be met: the smallest possible size is "),
        (["--model.parameters", "0"], "model.parameters must be a number > 0, got 0"),
        (["--model.parameters", "many"], "--model.parameters must be a number or null, got 'many'"),
        (["--model.parameters", "1e6", "--model.hidden_size", "9"], "give one of the two"),
        (["--model.parameters", "1e6", "--model.memory", "stor"], "model.memory must be one of 'store', 'recompute'"),
        (["--model.parameters", "1e6", "--model.groups", "[3, 4]"], "model.groups must add up to hidden_size"),
    ],
)
def test_mistakes_take_one_line(flags, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "demo", *flags]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error
    assert list(tmp_path.iterdir()) == []
