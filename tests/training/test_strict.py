import pytest
import torch
import yaml

from tiny import tiny_config, tiny_sequences, tiny_text
from trellisnet import LanguageModel, TrainingConfig, TrellisClassifier, TrellisNet
from trellisnet import fit as fit_model
from trellisnet.cli import main
from trellisnet.models import sizing
from trellisnet.training import fit, tasks
from trellisnet.training.progress import Progress
from trellisnet.training.reading import read_config
from trellisnet.training.values import typed


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    torch.set_default_dtype(torch.float32)
    monkeypatch.setattr(Progress, "say", lambda self, text: self.log(text))
    monkeypatch.setattr(tasks, "load", lambda name, **options: tiny_text())


def without(section, key):
    def change(content):
        del content[section][key]

    return change


def with_value(section, key, value):
    def change(content):
        content[section][key] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_value("model", "num_layers", 4), "the run was started with model.num_layers = 3, got 4"),
        (with_value("training", "epochs", 20), "the run was started with training.epochs = 2, got 20"),
        (with_value("about", "title", "better"), "the run was started with about.title = '', got 'better'"),
        (with_value("training", "epoch", 2), "unknown key training.epoch, did you mean 'training.epochs'?"),
        (
            with_value("data", "options", {"characters": 9}),
            "the run was started without data.options.characters, got 9",
        ),
        (with_value("data", "options", {"charcters": 9}), "did you mean 'data.options.characters'?"),
        (with_value("data", "options", {"characters": "9"}), "data.options.characters must be an integer or null"),
        (without("training", "seed"), "training.seed is missing, and the run was started with 0"),
        (without("model", "bias"), "model.bias is missing, and the run was started with True"),
    ],
)
def test_a_changed_configuration_is_refused_with_its_key(change, message, tmp_path, capsys):
    run = str(tmp_path / "run")
    fit.train_new(tiny_config(epochs=2), "run", tmp_path / "run")
    path = tmp_path / "run" / "config.yaml"
    content = yaml.safe_load(path.read_text())
    change(content)
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    capsys.readouterr()
    prediction = ["--input", str(path), "--output", str(tmp_path / "out.csv")]
    for command in (["evaluate", run], ["compare", run], ["predict", run, *prediction], ["train", "--resume", run]):
        assert main(command) == 2
        error = capsys.readouterr().err
        assert message in error
        assert "config.yaml" in error
        assert error.count("\n") == 1


def test_a_text_for_a_list_is_one_item():
    assert typed("columns", list[str], "abc") == ["abc"]
    values = {"data": {"name": "series", "options": {"path": "x.csv", "task": "regression", "values": "temperature"}}}
    config = read_config({**values, "model": {"hidden_size": 4, "num_layers": 2}}, "own")
    assert config.data.options["values"] == ["temperature"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "adding", "steps": "9"}, "data: data.options.steps must be an integer, got '9'"),
        ({"name": "adding", "step": 9}, "unknown key data.options.step of the dataset 'adding', did you mean"),
        ({"name": "series", "path": "x.csv", "task": "regression", "standardise": "false"}, "must be true or false"),
        ({"name": "wikitext-2", "steps": 3}, "data.options.steps of the dataset 'wikitext-2'; it has no options"),
    ],
)
def test_options_of_a_dataset_are_typed_in_python(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        fit_model(TrellisClassifier(1, 4, 2, 2), options, folder=tmp_path / "run")


def test_help_lists_the_options_of_the_dataset(capsys):
    for arguments, expected in {
        ("adding",): "--data.options.steps STEPS length of a sequence, at least 2. (type: int, default: 600)",
        ("my-labels",): "--data.options.standardise {true,false} scale every input channel",
        ("demo", "--data.name", "text"): "data.options, options of the dataset text: --data.options.path PATH the file",
    }.items():
        with pytest.raises(SystemExit):
            main(["train", *arguments, "--help"])
        assert expected in " ".join(capsys.readouterr().out.split())


def test_another_dataset_drops_the_options_of_the_first(capsys):
    assert main(["train", "demo", "--data.name", "ptb-char", "--data.options.characters", "3"]) == 2
    assert "unknown key data.options.characters of the dataset 'ptb-char'" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["false", 0, 1, None, "yes"])
def test_booleans_are_true_or_false(value, tmp_path):
    with pytest.raises(TypeError, match="bias must be True or False"):
        TrellisNet(2, 4, 2, bias=value)
    if value is not None:
        with pytest.raises(TypeError, match="tied must be True or False"):
            LanguageModel(TrellisNet(2, 4, 2), vocab_size=5, tied=value)
    with pytest.raises(TypeError, match=r"training\.average must be True or False"):
        fit_model(
            TrellisClassifier(2, 4, 2, 2), tiny_sequences(), TrainingConfig(average=value), folder=tmp_path / "run"
        )
    with pytest.raises(TypeError, match="shuffle must be True or False"):
        tiny_sequences().batches("train", 4, shuffle=value)


@pytest.mark.parametrize(
    ("flag", "bound"),
    [
        ("--model.num_layers", "model.num_layers must be an integer from 1 to 65,536"),
        ("--model.hidden_size", "model.hidden_size must be an integer from 1 to 2,147,483,647"),
        ("--training.batch_size", "training.batch_size must be an integer from 1 to 2,147,483,647"),
    ],
)
def test_sizes_have_an_upper_bound(flag, bound, capsys):
    for value in (10**23, 10**200):
        assert main(["train", "adding", flag, str(value)]) == 2
        assert bound in capsys.readouterr().err


def test_a_model_larger_than_the_machine_is_refused_before_it_is_built(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks.base, "physical_memory", lambda: 2**30)
    with pytest.raises(MemoryError, match=r"a model of .* parameters needs 298 GB, this machine has 1 GB"):
        fit.train_new(tiny_config({"hidden_size": 100_000}), "run", tmp_path / "run")
    assert sizing.physical_memory() > 2**20
    with pytest.raises(MemoryError, match=r"a smaller model\.hidden_size or model\.num_layers"):
        fit.train_new(tiny_config({"body": "lstm", "hidden_size": 2000, "num_layers": 60}), "run", tmp_path / "run")
