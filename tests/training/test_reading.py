import re

import pytest
import yaml

from trellisnet.training.config import Config
from trellisnet.training.reading import read_config, same_config
from trellisnet.training.recipes import load_recipe
from trellisnet.training.runs import Run

NULLS = dict.fromkeys(
    ["embedding_size", "head", "tied", "alpha", "beta", "history", "horizon", "aux_every", "dilation"]
)
VERSION_1 = {
    "version": 1,
    "about": {"title": "", "metric": None, "paper_result": None, "paper_parameters": None},
    "data": {"name": "adding", "root": None, "options": {"steps": 30}},
    "model": {"hidden_size": 8, "num_layers": 2, "output_size": 8, "cell": "relu", "bias": True, **NULLS},
    "training": {"epochs": 1, "schedule": "one-cycle", "warmup": 0.1, "steps": None, "depths": [[0.5, 1]]},
}


@pytest.fixture
def run(tmp_path):
    Run.create(read_config(load_recipe("demo"), "demo"), "run", tmp_path / "run").release()
    return tmp_path / "run"


def rewrite(run, section, **changes):
    """Change a run's config.yaml, as a user with an editor does."""
    content = yaml.safe_load((run / "config.yaml").read_text())
    content[section].update(changes)
    (run / "config.yaml").write_text(yaml.safe_dump(content, sort_keys=False))


@pytest.mark.parametrize(
    ("section", "key", "value", "message"),
    [
        ("training", "schedule", "cosin", "must be one of 'constant', .*, got 'cosin', did you mean 'cosine'?"),
        ("training", "schedule", "one-cycle", ".*, got 'one-cycle': write cosine"),
        ("model", "hidden_size", "8", "must be an integer, got '8'"),
        ("model", "hidden_size", 8.0, "must be an integer, got 8.0"),
        ("model", "hidden_size", True, "must be an integer, got True"),
        ("model", "hidden_size", None, "must be an integer, got None"),
        ("model", "hidden_size", 0, "must be an integer >= 1, got 0"),
        ("model", "weight_norm", "yes", "must be true or false, got 'yes'"),
        ("model", "weight_norm", 1, "must be true or false, got 1"),
        ("model", "weight_norm", None, "must be true or false, got None"),
        ("model", "dilation", ["1"], r"must be an integer or a list of integers, got \['1'\]"),
        ("model", "memory", "stor", "must be one of 'store', 'recompute', got 'stor', did you mean 'store'?"),
        ("model", "output_size", 500, "must be at most hidden_size = 384, got 500"),
        ("model", "body", "lsm", "must be one of 'trellis', .*, got 'lsm', did you mean 'lstm'?"),
        ("training", "learning_rate", "fast", "must be a number, got 'fast'"),
        (
            "training",
            "depths",
            [[0.5]],
            r"must be a list of \[number, integer or \[integer, integer\]\], got \[\[0.5\]\]",
        ),
        ("data", "options", "path", "must be a mapping, got 'path'"),
        ("data", "name", "ptb-wrd", "must be one of 'ptb-word', .*, did you mean 'ptb-word'?"),
        ("about", "metric", "bit", "must be one of 'perplexity', .* or null, got 'bit', did you mean 'bits'?"),
    ],
)
def test_wrong_values_are_named_with_file_key_and_expectation(run, section, key, value, message):
    rewrite(run, section, **{key: value})
    where = re.escape(f"{run / 'config.yaml'}: {section}.{key} ")
    with pytest.raises(ValueError, match=where + message.replace("?", r"\?")):
        Run.open(run)


@pytest.mark.parametrize(
    ("section", "key", "message"),
    [
        (
            "model",
            "hiden_size",
            "model.hiden_size with body 'trellis' on data 'python-library', did you mean 'model.hid",
        ),
        ("model", "dropout", "model.dropout with body 'trellis' on"),
        ("training", "epoch", "training.epoch, did you mean 'training.epochs'?"),
    ],
)
def test_unknown_keys_are_named(run, section, key, message):
    rewrite(run, section, **{key: None})
    with pytest.raises(ValueError, match=re.escape(f"config.yaml: unknown key {message}")):
        Run.open(run)


@pytest.mark.parametrize("bytes_", [0, 1, 30, 200, 400, 900, -1, -12])
def test_a_cut_file_is_refused(run, bytes_):
    """Wherever it is cut, since its last line is the version."""
    whole = (run / "config.yaml").read_bytes()
    (run / "config.yaml").write_bytes(whole[:bytes_])
    assert len(whole) > 1000
    if bytes_ == -1:  # only the line end is missing
        assert Run.open(run)
    else:
        with pytest.raises(ValueError, match=re.escape(str(run / "config.yaml"))):
            Run.open(run)


def test_sizes_of_a_trellis_are_needed():
    with pytest.raises(ValueError, match=r"x: model\.num_layers is needed with body 'trellis', and is not given"):
        read_config({"model": {"hidden_size": 8}}, "x")
    assert read_config({"model": {"hidden_size": 8, "body": "lstm"}}, "x").model.num_layers == 1


def old_run(folder, **model):
    folder.mkdir()
    content = {**VERSION_1, "model": {**VERSION_1["model"], **model}}
    (folder / "config.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return folder


def test_a_run_of_version_1_is_read(tmp_path):
    config = Run.open(old_run(tmp_path / "run")).config
    assert config.training.schedule == "cosine"
    assert config.training.depths == [(0.5, 1)]
    assert not hasattr(config.model, "head")
    assert config.model.chosen() == {"hidden_size": 8, "num_layers": 2, "output_size": 8, "cell": "relu"}
    assert Run.open(old_run(tmp_path / "same", body={"name": "trellis"})).config == config


@pytest.mark.parametrize(("key", "value"), [("head", "mos"), ("hiden_size", None), ("num_layers", "2")])
def test_mistakes_in_a_run_of_version_1_are_refused(tmp_path, key, value):
    with pytest.raises(ValueError, match=f"config.yaml: (unknown key )?model.{key} "):
        Run.open(old_run(tmp_path / "run", **{key: value}))


def test_another_version_is_refused(run):
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace("version: 2", "version: 3"))
    with pytest.raises(ValueError, match=r"config\.yaml is of version 3, this trellisnet reads versions 1 to 2"):
        Run.open(run)


def test_a_checkpoint_of_version_1_belongs_to_its_run(tmp_path):
    config = Run.open(old_run(tmp_path / "run")).config
    saved = {name: section for name, section in VERSION_1.items() if name != "version"}
    assert same_config(saved, config)
    assert same_config(config.to_dict(), config)
    assert not same_config({**saved, "training": {**saved["training"], "epochs": 2}}, config)
    assert isinstance(config, Config)
