import pytest

from tiny import tiny_text
from trellisnet import TrellisLM
from trellisnet.cli import main
from trellisnet.training import tasks
from trellisnet.training.ablation import ABLATIONS, variant
from trellisnet.training.config import Config, DataConfig, model_config
from trellisnet.training.reading import read_config
from trellisnet.training.recipes import load_recipe


def word_ptb():
    return read_config(load_recipe("word-ptb"), "word-ptb")


@pytest.mark.parametrize("ablation", ABLATIONS, ids=lambda ablation: ablation.name)
def test_every_row_of_the_papers_table_is_an_equally_large_model(ablation):
    config, reason = variant(word_ptb(), ablation)
    assert reason is None
    lm = TrellisLM(10_000, **config.model.chosen(), device="meta")
    assert lm.num_parameters == pytest.approx(24.18e6, rel=0.002)
    assert (config.model == word_ptb().model) == (ablation.name == "full")


def test_what_a_recipe_does_not_have_cannot_be_left_out():
    model = model_config("trellis", "sequences")(hidden_size=5, groups=[2, 3], num_layers=4)
    config = Config(data=DataConfig("adding"), model=model)
    told = {ablation.name: variant(config, ablation)[1] for ablation in ABLATIONS}
    assert told["no-aux"] == "the recipe has no aux_every"
    assert told["no-parallelism"] == "the recipe discards no context"
    assert told["no-dense-kernel"] == "the recipe has groups already"
    assert told["inject-5"] == "the recipe has only 4 layers"
    assert told["full"] is told["inject-2"] is None


def test_the_table_is_printed_beside_the_papers(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tasks, "load", lambda name, **options: tiny_text("words"))
    monkeypatch.chdir(tmp_path)
    flags = [
        "--model.embedding_size",
        "4",
        "--model.hidden_size",
        "8",
        "--model.num_layers",
        "3",
        "--model.horizon",
        "3",
    ]
    flags += ["--training.epochs", "1", "--training.steps", "5", "--training.batch_size", "4", "--training.sample", "0"]
    arguments = ["ablate", "word-ptb", *flags, "--only", "[full,no-parallelism,inject-2,inject-20]"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "57.35" in out
    assert "+0.38" in out
    assert "only 3 layers" in out
    assert {path.name for path in (tmp_path / "runs" / "ablate-word-ptb").iterdir()} == {
        "full",
        "no-parallelism",
        "inject-2",
    }
    assert main(arguments) == 0  # what is finished is not trained again
    assert capsys.readouterr().out == out
