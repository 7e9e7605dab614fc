import pytest
import torch

from tiny import shrunk, tiny_data, tiny_sequences, tiny_text
from trellisnet import TrellisLM
from trellisnet.cli import UsageError, parse
from trellisnet.commands.train import train
from trellisnet.data import DATASETS
from trellisnet.training import fit, tasks
from trellisnet.training.checks import check_config
from trellisnet.training.loop import Trainer
from trellisnet.training.recipes import load_recipe, merged, recipe_names
from trellisnet.training.runs import Run
from trellisnet.training.tasks import make_task

PAPER = ["char-ptb", "perm-mnist", "seq-cifar10", "seq-mnist", "wikitext-103"]
PAPER += ["word-ptb", "word-ptb-large", "word-ptb-mos", "word-ptb-mos-large"]
SMALL = ["adding", "char-ptb-small", "copy-memory", "demo", "jsb-small", "nottingham-small", "perm-mnist-small"]
SMALL += ["multi30k-small", "perm-mnist-cpu", "seq-cifar10-cpu", "seq-mnist-cpu", "word-ptb-small"]
SWEEPS = ["char-ptb-sweeps", "word-ptb-sweeps"]
TEMPLATES = ["my-labels", "my-series", "my-tags", "my-text", "my-translation"]


def config_of(name, *flags):
    return parse("train", train, [name, *flags])["config"]


def test_all_recipes_are_there():
    assert recipe_names() == sorted(PAPER + SMALL + SWEEPS + TEMPLATES)


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_results_are_told(name):
    about = load_recipe(name)["about"]
    assert about["paper_result"] > 0
    assert about["metric"] in ("perplexity", "bits", "accuracy")


SIZES = {"word-ptb": 24.18, "word-ptb-large": 33, "word-ptb-mos": 25.7, "word-ptb-mos-large": 34, "char-ptb": 13.45}


@pytest.mark.parametrize("name", [*SIZES, "wikitext-103"])
def test_the_papers_sizes_are_met(name):
    words = {"char-ptb": 50, "wikitext-103": 267_735}.get(name, 10_000)
    lm = TrellisLM(words, **config_of(name).model.chosen(), device="meta")
    assert lm.num_parameters / 1e6 == pytest.approx(SIZES.get(name, 180), rel=0.02)


@pytest.mark.parametrize("body", ["trellis", "lstm"])
@pytest.mark.parametrize("name", PAPER + SMALL + SWEEPS + TEMPLATES)
def test_two_steps_of_every_recipe(name, body, tmp_path, monkeypatch):
    """With its own options, but narrow, shallow, and on tiny data."""
    torch.set_default_dtype(torch.float32)
    config = config_of(name, "--model.body", body)
    check_config(config)
    assert not config.about.title.endswith(".")
    data = tiny_data(config.data.name)
    if name in ("my-labels", "my-tags"):
        data = tiny_sequences("tagging" if name == "my-tags" else "classification", 300, 40, 2)
    monkeypatch.setattr(tasks, "load", lambda *a, **k: data)

    class TwoSteps(Exception):
        pass

    losses = []
    step = Trainer._step

    def counted(self, *args):
        losses.append(step(self, *args))
        if len(losses) == 2:
            raise TwoSteps
        return losses[-1]

    monkeypatch.setattr(Trainer, "_step", counted)
    with pytest.raises(TwoSteps):
        fit.train_new(shrunk(config), name, tmp_path / "run")
    assert all(0 < loss < 1e4 for loss in losses)


def test_the_datasets_of_the_recipes_exist():
    for name in recipe_names():
        assert load_recipe(name)["data"]["name"] in DATASETS


def test_a_recipe_extends_another(tmp_path):
    (tmp_path / "own.yaml").write_text("extends: word-ptb-mos\nmodel: {hidden_size: 500}\n")
    own, base = load_recipe(str(tmp_path / "own.yaml")), load_recipe("word-ptb")
    assert own["model"]["hidden_size"] == 500
    assert own["model"]["head"] == "mos"
    assert own["training"]["learning_rate"] == base["training"]["learning_rate"]
    (tmp_path / "child.yaml").write_text("extends: own.yaml\n")
    assert load_recipe(str(tmp_path / "child.yaml")) == own
    assert config_of(str(tmp_path / "child.yaml")).model.hidden_size == 500


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends: bad.yaml", "extends itself"),
        ("- a", "must be a mapping"),
        ("a: [", "is not valid YAML"),
        ("modle: {hidden_size: 3}", "unknown section 'modle', did you mean 'model'"),
        ("", "must be a mapping with the keys about, data, model, training, got an empty file"),
        (
            "model: {hiden_size: 3}",
            "unknown key model.hiden_size with body 'trellis' on data 'python-library', did you ",
        ),
        ("model: {hiden_size: 3}", "did you mean 'model.hidden_size'?"),
        ("model: {hidden_size: many}", "hidden_size"),
        ("model: 3", "model must be a mapping of options, got 3"),
        ("modle: {}", "unknown section 'modle'"),
    ],
)
def test_bad_recipes_are_named(tmp_path, text, message):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(Exception, match=message.replace("?", r"\?")):
        config_of(str(path))


def test_merging_leaves_its_parts_alone():
    base = {"a": {"b": 1}}
    merged(base, {"a": {"b": 2}})
    assert base == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--training.batch_size", "7", "--training.accumulate", "2"], "training.batch_size must be a multiple"),
        (["--training.decay_after", "[3]", "--training.schedule", "constant"], "training.decay_after belongs to"),
        (["--training.momentum", "0.9"], "training.momentum belongs to training.optimiser=sgd"),
        (["--training.warmup", "1.5"], "training.warmup must be a share"),
        (["--training.epochs", "0"], "training.epochs must be an integer >= 1, got 0"),
        (["--training.clip", "-1"], "training.clip must be a number > 0"),
        (["--training.decay", "1"], "training.decay must be a number > 1"),
        (["--training.depths", "[[0.5,3],[0.2,4]]"], "training.depths must be"),
        (["--training.depths", "[[2,3]]"], "training.depths must be"),
        (["--training.depths", "[[0.5,0]]"], "a depth of training.depths must be an integer >= 1, got 0"),
        (["--training.depths", "[[1,[3,1]]]"], r"must be \[lowest, highest\] in this order, got \[3, 1\]"),
        (["--training.depths", "[[1,[0,4]]]"], "a depth of training.depths must be an integer >= 1, got 0"),
        (["--training.depths", "[[1,3]]"], r"a share of 1 needs a range \[lowest, highest\], got the depth 3"),
        (["--training.depths", "[[1,[1,4]]]", "--model.body", "gru"], "training.depths needs a body with a depth"),
        (["--training.steps", "0"], "training.steps must be an integer >= 1, got 0"),
        (["--training.depths", "[[0.5,3]]", "--model.body", "gru"], "training.depths needs a body with a depth"),
    ],
)
def test_contradictions_are_named(flags, message):
    with pytest.raises(ValueError, match=message):
        check_config(config_of("demo", *flags))


def test_random_windows_are_longer_than_the_shortest():
    flags = ["--training.random_windows", "true", "--training.steps"]
    check_config(config_of("demo", *flags, "10"))
    with pytest.raises(ValueError, match=r"training\.random_windows needs training\.steps >= 10, .*, got 9"):
        check_config(config_of("demo", *flags, "9"))


def test_a_model_has_the_options_of_its_data():
    with pytest.raises(UsageError, match=r"unknown flag --model\.head with body 'trellis' on data 'seq-mnist'"):
        config_of("seq-mnist", "--model.head", "mos")


@pytest.mark.parametrize(
    ("name", "value"), [("steps", "50"), ("evaluation", "windows"), ("sample", "9"), ("random_windows", "True")]
)
def test_options_of_text_are_no_options_of_sequences(name, value, monkeypatch):
    monkeypatch.setattr(tasks, "load", lambda *a, **k: tiny_sequences())
    with pytest.raises(ValueError, match=f"training.{name} belongs to text, and tiny is not text: got '?{value}"):
        make_task(config_of("seq-mnist", f"--training.{name}", value))


@pytest.mark.parametrize("name", PAPER + SMALL + SWEEPS + TEMPLATES)
def test_a_configuration_survives_its_file(name, tmp_path):
    """And the file is a recipe: a run can be repeated from it."""
    config = config_of(name)
    Run.create(config, name, tmp_path / "run").release()
    assert Run.open(tmp_path / "run").config == config
    assert config_of(str(tmp_path / "run" / "config.yaml")) == config


@pytest.mark.parametrize("name", ["demo", "seq-mnist"])
def test_a_configuration_is_resolved(name, monkeypatch):
    """With the model's own defaults; and what is resolved stays as it is."""
    monkeypatch.setattr(tasks, "load", lambda *a, **k: tiny_text() if name == "demo" else tiny_sequences())
    resolved = make_task(config_of(name)).config
    assert resolved.model.cell == ("coupled" if name == "demo" else "lstm")
    assert resolved.model.kernel_size == 2
    assert resolved.model.memory == "store"
    assert getattr(resolved.model, "head", None) == ("softmax" if name == "demo" else None)
    assert resolved.training.evaluation == ("streaming" if name == "demo" else None)
    assert make_task(resolved).config == resolved
