import json
import re
import shlex
from dataclasses import replace

import pytest

from tiny import tiny_text
from trellisnet import TrellisLM
from trellisnet.cli import main, parse
from trellisnet.commands.train import train
from trellisnet.training import tasks
from trellisnet.training.ablation import ABLATIONS, sized, variant
from trellisnet.training.config import Config, DataConfig, model_config
from trellisnet.training.loop import Trainer
from trellisnet.training.non_finite import NotANumberError
from trellisnet.training.reading import read_config
from trellisnet.training.recipes import load_recipe
from trellisnet.training.reporting import report
from trellisnet.training.runs import Run
from trellisnet.training.tasks import make_task


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


FLAGS = ["--model.embedding_size", "4", "--model.hidden_size", "8", "--model.num_layers", "3", "--model.horizon", "3"]
FLAGS += ["--training.epochs", "1", "--training.steps", "5", "--training.batch_size", "4", "--training.sample", "0"]
ONLY = ["--only", "full,no-parallelism,inject-2,inject-20"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "load", lambda name, **options: tiny_text("words"))
    monkeypatch.setattr(report, "has_matplotlib", lambda: False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs" / "ablate-word-ptb"


def test_the_table_is_printed_beside_the_papers(folder, capsys):
    arguments = ["ablate", "word-ptb", *FLAGS, *ONLY, "--seeds", "2"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    full, parallel, inject, inject_20 = (re.split(r"\s{2,}", line.strip()) for line in out.splitlines()[1:5])
    assert parallel[-2:] == ["57.35", "+0.38"]
    assert "only 3 layers" in inject_20[5]
    assert full[2] == parallel[2] == inject[2] == "2"
    results = json.loads((folder / "results.json").read_text())
    whole, changed = (results["ablations"][i]["test"] for i in (0, 2))
    assert whole["mean"] == pytest.approx(sum(whole["values"]) / 2)
    assert len(set(whole["values"])) == 2
    assert float(inject[6]) == pytest.approx(changed["mean"] - whole["mean"], rel=0.01)
    assert {path.name for path in folder.iterdir()} == {"full", "no-parallelism", "inject-2", "results.json"}
    assert main(arguments) == 0  # what is finished is not trained again
    assert capsys.readouterr().out == out


def test_every_run_has_the_command_that_repeats_it(folder):
    assert main(["ablate", "word-ptb", *FLAGS, "--only", "no-dense-kernel,no-parallelism", "--seeds", "2"]) == 0
    for one in json.loads((folder / "results.json").read_text())["ablations"]:
        assert one["seeds"] == [0, 1]
        for seed, command in enumerate(one["commands"]):
            config = parse("train", train, shlex.split(command)[2:])["config"]
            trained = Run.open(folder / one["name"] / f"seed-{seed}").config
            assert replace(make_task(config).config, about=trained.about) == trained


def test_all_variants_have_the_width_of_a_budget():
    config = read_config(load_recipe("adding"), "adding")
    config.model = config.model.changed(parameters=9000)
    wide = sized(config)
    assert wide.model.parameters is None
    changed, reason = variant(wide, next(each for each in ABLATIONS if each.name == "no-dense-kernel"))
    assert reason is None
    assert sum(changed.model.groups) == changed.model.hidden_size


def test_a_variant_that_diverges_is_a_line_of_the_table(folder, monkeypatch, capsys):
    step = Trainer._step

    def step_or_fail(self, *args):
        if self.run.folder.parts[-2] == "inject-2":
            raise NotANumberError("the loss is not a finite number")
        return step(self, *args)

    monkeypatch.setattr(Trainer, "_step", step_or_fail)
    assert main(["ablate", "word-ptb", *FLAGS, "--only", "full,inject-2"]) == 0
    assert "(diverged)" in capsys.readouterr().out.splitlines()[2]


def test_seeds_must_be_positive(capsys):
    assert main(["ablate", "word-ptb", "--seeds", "0"]) == 2
    assert "--seeds must be an integer >= 1, got 0" in capsys.readouterr().err
