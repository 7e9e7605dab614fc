import re
import subprocess
import sys

import pytest

from trellisnet.cli import UsageError, main, parse
from trellisnet.commands.train import train


def config_of(*arguments):
    return parse("train", train, arguments)["config"]


def test_another_body_keeps_what_is_not_its_own(capsys):
    recipe, config = config_of("word-ptb"), config_of("word-ptb", "--model.body", "lstm")
    assert capsys.readouterr().err == (
        "note: options of the recipe that do not apply to the body 'lstm': model.num_layers, model.init, "
        "model.hidden_dropout, model.weight_dropout, model.aux_every, model.aux_weight\n"
    )
    own = {"num_layers": 1, "init": "uniform", "dropout": 0.0, "bias": True, "output_size": None}
    for name in ("hidden_size", "embedding_size", "output_dropout", "alpha", "history", "horizon"):
        assert getattr(config.model, name) == getattr(recipe.model, name)
    assert {name: getattr(config.model, name) for name in own} == own
    assert config.model.aux_weight is None
    assert config.training == recipe.training


def test_depths_belong_to_the_body_of_the_recipe(capsys, tmp_path):
    own = str(tmp_path / "own.yaml")
    (tmp_path / "own.yaml").write_text("extends: word-ptb\ntraining: {depths: [[0.5, 3]]}\n")
    assert config_of(own).training.depths
    assert config_of(own, "--model.body=gru", "--model.num_layers=2").training.depths == []
    assert capsys.readouterr().err.endswith("model.aux_weight, training.depths\n")
    assert config_of(own, "--model.body", "trellis") == config_of(own)
    assert capsys.readouterr().err == ""


def test_a_recipe_can_extend_another_with_another_body(tmp_path, capsys):
    (tmp_path / "own.yaml").write_text("extends: word-ptb\nmodel: {body: gru, num_layers: 2}\n")
    config = config_of(str(tmp_path / "own.yaml"))
    assert (config.model.body, config.model.hidden_size, config.model.num_layers) == ("gru", 1400, 2)
    assert capsys.readouterr().err == ""
    with pytest.raises(UsageError, match=r"model\.num_layers is needed with body 'trellis'"):
        config_of(str(tmp_path / "own.yaml"), "--model.body", "trellis")
    assert config_of(str(tmp_path / "own.yaml"), "--model.body=trellis", "--model.num_layers=4").model.num_layers == 4


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--model.body", "lsm"], "--model.body must be one of .*, got 'lsm', did you mean 'lstm'?"),
        (["--model.body", "lstm", "--model.cell", "gru"], "unknown flag --model.cell with body 'lstm'"),
        (["--model.body", "lstm", "--model.droput", "0"], "with body 'lstm' .*, did you mean 'model.dropout'?"),
        (["--data.name", "ading"], "--data.name must be one of .*, got 'ading', did you mean 'adding'?"),
        (["--data.name", "adding"], "recipe demo on adding: unknown key model.embedding_size"),
        (["--training.schedule", "one-cycle"], "got 'one-cycle': write cosine"),
        (["--training.tensorboard", "yes"], "--training.tensorboard must be true or false, got 'yes'"),
        (["--epochs", "3"], "unknown flag --epochs, did you mean '--training.epochs'?"),
        (["--too", "x"], "unknown flag --too, did you mean '--to'?"),
        (["--model.memory", "stor"], "model.memory must be one of 'store', 'recompute', got 'stor'"),
    ],
)
def test_mistakes_in_flags_are_named(flags, message):
    with pytest.raises(UsageError, match=message.replace("?", r"\?")):
        config_of("demo", *flags)


def test_options_of_the_data_are_added_to_those_of_the_recipe():
    config = config_of("my-text", "--data.options.path", "[c", "--data.options.vocabulary_size=300")
    assert config.data.options == {"kind": "characters", "path": "[c", "vocabulary_size": 300}


def test_help_shows_the_options_of_the_recipe(capsys):
    def told(*arguments):
        with pytest.raises(SystemExit):
            main(["train", *arguments, "--help"])
        return " ".join(capsys.readouterr().out.split())

    adding, lstm = told("adding"), told("demo", "--model.body", "lstm", "--training.epochs", "7")
    assert "--model.inject_every INJECT_EVERY the input enters every n-th layer, beginning with the first. " in adding
    assert "(type: int, default: 10)" in adding
    assert "--model.head" not in adding
    assert "--model.cell" not in lstm
    assert "--model.dropout DROPOUT between the layers. (type: float, default: 0.0)" in lstm
    assert re.search(r"--training.epochs EPOCHS passes over the training split; .* \(type: int, default: 7\)", lstm)
    assert "--model.hidden_size HIDDEN_SIZE channels of every layer. The" in told()


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "word-ptb", "--help"],
        ["train", "word-ptp"],
        ["train", "demo", "--model.hidden_size", "0"],
        ["train", "demo", "--model.body", "lsm"],
        ["evaluate"],
        ["ablate", "demo", "--training.epochs", "many"],
    ],
)
def test_help_and_mistakes_do_not_import_torch(arguments):
    code = f"""
import sys
from trellisnet.cli import main
try:
    main({arguments!r})
except SystemExit:
    pass
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0
