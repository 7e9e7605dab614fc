import re

import numpy as np
import torch

from tiny import tiny_config, tiny_sequences, tiny_text
from trellisnet import TrainingConfig, TrellisClassifier
from trellisnet.cli import main
from trellisnet.training import fit, tasks
from trellisnet.training.runs import Run


def test_a_recipe_and_a_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tasks, "load", lambda name, **options: tiny_text())
    model = tasks.make_task(config := tiny_config({"history": "discard", "horizon": 2})).model
    run = Run.create(config, "run", tmp_path / "run")
    run.release()
    assert main(["explain", str(run.folder)]) == 0
    out = capsys.readouterr().out
    assert "4 x 8 steps, the last 6 of the outputs, by the path of layers" in out
    told = model.net.explain(8, 4, tail=6)
    for figures in told.nets:
        assert f"{figures.multiply_adds:,}" in out
    assert f"the whole model has {sum(p.numel() for p in model.parameters()):,} parameters" in out
    assert main(["explain", str(run.folder), "--model.num_layers", "5", "--depth", "2"]) == 0
    assert re.search(r"receptive field, steps +3 ", capsys.readouterr().out)


def test_a_recipe_of_sequences(monkeypatch, capsys):
    monkeypatch.setattr(tasks, "load", lambda name, **options: tiny_sequences())
    assert main(["explain", "seq-mnist", "--training.batch_size", "6", "--training.accumulate", "2"]) == 0
    assert "3 x 9 steps, the last 1 of the outputs" in capsys.readouterr().out


def test_mistakes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["explain", "adding", "--model.body", "lstm"]) == 2
    assert "explain needs a recipe with the body 'trellis', got 'lstm'" in capsys.readouterr().err
    model = TrellisClassifier(2, 4, num_layers=2, num_classes=2, dtype=torch.float32)
    x, y = np.random.default_rng(0).standard_normal((20, 5, 2)), np.arange(20) % 2
    fit.fit(model, (x, y), TrainingConfig(epochs=1, batch_size=4), "mine")
    capsys.readouterr()
    assert main(["explain", "mine"]) == 2
    assert "mine was started from Python" in capsys.readouterr().err
